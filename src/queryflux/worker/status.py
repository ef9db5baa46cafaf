"""What ``GET /worker/status`` shows: the worker's report of itself, and how it follows its configuration.

It needs no secret, for it holds none: no credential, no statement, no address of an engine. Whoever may reach
the ops listener may know it.
"""

from typing import Any, NamedTuple

import msgspec

from queryflux.fleet.registry import Heartbeat
from queryflux.worker.order import Position
from queryflux.worker.state import ConfigState


class Rejected(NamedTuple):
    """A revision that could not be used, and why."""

    revision: str
    error: str


class SyncStatus(NamedTuple):
    """How a worker stands to its control plane. Ages are seconds up to now; ``failure`` is what is wrong now,
    or empty."""

    state: ConfigState
    revision: str | None
    position: Position | None
    source: str | None
    stale: bool
    confirmed_age: float | None
    success_age: float | None
    failures: int
    failure: str
    failing_secs: float | None
    rejected: Rejected | None
    behind: str
    """Why a control plane that answers has nothing for this worker; empty when it is not behind it."""


def status_document(
    report: Heartbeat, status: SyncStatus, *, ready: str, control_plane: str, unreported: str
) -> dict[str, Any]:
    """The document, as generic JSON. ``ready`` says why the worker takes no queries; empty: it does.
    ``control_plane`` is the address that calls go to first; ``unreported`` says why it does not take reports
    of this worker."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    del document["number"]
    document |= {
        "role": "worker",
        "ready": not ready,
        "notReady": ready or None,
        "controlPlane": control_plane,
        "configState": status.state.value,
        "behind": status.behind or None,
        "notReported": unreported or None,
    }
    return document
