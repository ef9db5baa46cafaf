"""What differs between two configurations (generic JSON), as a list for people and programs.

Both are compared with secrets in clear, and shown without: a secret that changed shows as changed, no more.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from queryflux.config.masking import MARKER
from queryflux.config.problems import Path, render_path


class Change(Struct, frozen=True, kw_only=True):
    """One difference. ``op`` is ``add``, ``remove`` or ``change``; ``before`` and ``after`` are masked, and
    absent where there is nothing."""

    op: str
    path: str
    before: Any = UNSET
    after: Any = UNSET
    secret: bool = False
    """The value of a secret is what changed."""


def changes(before: Any, after: Any, shown_before: Any, shown_after: Any) -> list[Change]:
    """From ``before`` to ``after``; ``shown_...`` are the same, masked."""
    return list(_walk((), (before, after), (shown_before, shown_after)))


def _walk(path: Path, pair: tuple[Any, Any], shown: tuple[Any, Any]) -> Iterator[Change]:
    before, after = pair
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            yield from _walk(
                (*path, key),
                (before.get(key, UNSET), after.get(key, UNSET)),
                (_get(shown[0], key), _get(shown[1], key)),
            )
    elif isinstance(before, UnsetType) and isinstance(after, Mapping) and len(path) < 2:
        for key in after:
            yield from _walk((*path, key), (UNSET, after[key]), (UNSET, _get(shown[1], key)))
    elif isinstance(after, UnsetType) and isinstance(before, Mapping) and len(path) < 2:
        for key in before:
            yield from _walk((*path, key), (before[key], UNSET), (_get(shown[0], key), UNSET))
    else:
        yield _change(path, shown)


def _change(path: Path, shown: tuple[Any, Any]) -> Change:
    before, after = shown
    op = "add" if before is UNSET else "remove" if after is UNSET else "change"
    secret = op == "change" and before == after
    return Change(op=op, path=render_path(path), before=before, after=after, secret=secret)


def _get(value: Any, key: str) -> Any:
    return value.get(key, UNSET) if isinstance(value, Mapping) else UNSET


def change_document(change: Change) -> dict[str, Any]:
    """A change as JSON."""
    document: dict[str, Any] = {"op": change.op, "path": change.path}
    for key, value in (("before", change.before), ("after", change.after)):
        if value is not UNSET:
            document[key] = value
    if change.secret:
        document["secret"] = True
    return document


def change_of(document: Mapping[str, Any]) -> Change:
    """The change that ``change_document`` made this of."""
    return Change(**document)


def rendered(change: Change) -> str:
    """One line for people."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    if change.op == "add":
        return f"+ {change.path}: {text(change.after)}"
    if change.op == "remove":
        return f"- {change.path}: {text(change.before)}"
    if change.secret:
        return f"~ {change.path}: {MARKER} (changed)"
    return f"~ {change.path}: {text(change.before)} -> {text(change.after)}"
