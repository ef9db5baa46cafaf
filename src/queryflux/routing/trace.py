"""How a query found its group. Kept as a few references; turned into words only when somebody reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from queryflux.routing.request import Hit


@dataclass(slots=True)
class Trace:
    """One walk through a chain.

    ``kinds`` are the chain's rule kinds; ``index`` is the rule that matched, or failed (-1: none did).
    ``skipped`` are groups that the fallback passed over, each with the reason.
    """

    kinds: Sequence[str]
    index: int = -1
    hit: Hit | None = None
    group: str | None = None
    used_fallback: bool = False
    skipped: tuple[tuple[str, str], ...] = ()
    denied: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For history and explain: a step for each rule that was asked, then the outcome."""
        asked = self.kinds if self.index < 0 else self.kinds[: self.index]
        steps: list[dict[str, Any]] = [{"type": kind, "matched": False} for kind in asked]
        if self.hit is not None:
            steps.append(_step(self.kinds[self.index], self.hit))
        document: dict[str, Any] = {
            "routers": steps,
            "used_fallback": self.used_fallback,
            "final_group": self.group,
        }
        if self.skipped:
            document["skipped_groups"] = [{"group": name, "reason": why} for name, why in self.skipped]
        if self.denied is not None:
            document["denied"] = self.denied
        return document


def _step(kind: str, hit: Hit) -> dict[str, Any]:
    if hit.failed is not None:
        return {"type": kind, "matched": False, "error": hit.detail}
    step: dict[str, Any] = {"type": kind, "matched": True, "detail": hit.detail}
    if hit.group is not None:
        step["result"] = hit.group
    if hit.denied is not None:
        step["denied"] = hit.denied
    return step
