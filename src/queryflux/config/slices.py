"""One router as rows, one for each group that it leads to, and back.

A row points at its group by id, so that a group can be renamed, and cannot be deleted while a rule leads
there. ``positions`` in a definition says where its rules stand among those of the other rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from queryflux.config.tables import RuleRow

POSITIONS = "positions"
_MAPS = {"header": "headerValueToGroup", "userGroup": "userToGroup"}
"""Routers that are a mapping of values to groups, under this key."""
_LISTS = ("queryRegex", "tags")
"""Routers that are a list of rules, each with its group."""

Slice = tuple[str | None, dict[str, Any]]
"""A group, or None, and the part of the router that leads there."""


def rows_of(routers: Iterable[Mapping[str, Any]]) -> tuple[RuleRow, ...]:
    """The rows of routers (generic JSON), in order."""
    return tuple(
        RuleRow(router=index, slice=number, definition=definition, target_group=group)
        for index, router in enumerate(routers)
        for number, (group, definition) in enumerate(_slices(router))
    )


def routers_of(rows: Iterable[RuleRow]) -> list[dict[str, Any]]:
    """The routers of rows that are in order (router, slice)."""
    routers: dict[int, list[RuleRow]] = {}
    for row in rows:
        routers.setdefault(row.router, []).append(row)
    return [_whole(routers[index]) for index in sorted(routers)]


def _whole(rows: list[RuleRow]) -> dict[str, Any]:
    """One router out of its slices; what cannot be put together stands as it is stored, to be complained
    about."""
    try:
        return _joined(rows)
    except (AttributeError, TypeError, ValueError):
        return {**rows[0].definition}


def _slices(router: Mapping[str, Any]) -> list[Slice]:
    """At least one slice, so that no router is lost."""
    kind = router["type"]
    if kind == "protocolBased":
        pairs = {key: group for key, group in router.items() if key != "type"}
        return [(group, {"type": kind, **part}) for group, part in _by_group(pairs)] or [(None, {**router})]
    if kind in _MAPS:
        return _map_slices(router, _MAPS[kind])
    if kind in _LISTS:
        return _list_slices(router)
    return [(router.get("targetGroup"), {**router})]


def _map_slices(router: Mapping[str, Any], key: str) -> list[Slice]:
    parts = _by_group(router.get(key, {}))
    return [(group, {**router, key: part}) for group, part in parts] or [(None, {**router})]


def _by_group(pairs: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    groups: dict[str, dict[str, str]] = {}
    for value, group in pairs.items():
        groups.setdefault(group, {})[value] = group
    return list(groups.items())


def _list_slices(router: Mapping[str, Any]) -> list[Slice]:
    groups: dict[str | None, list[int]] = {}
    rules = router.get("rules", [])
    for position, rule in enumerate(rules):
        groups.setdefault(rule.get("targetGroup"), []).append(position)
    return [
        (group, {**router, "rules": [rules[position] for position in positions], POSITIONS: positions})
        for group, positions in groups.items()
    ] or [(None, {**router})]


def _joined(rows: list[RuleRow]) -> dict[str, Any]:
    """One router out of its slices."""
    first = rows[0].definition
    kind = first.get("type")
    if kind == "protocolBased":
        parts = [
            {key: row.target_group or group for key, group in row.definition.items() if key != "type"}
            for row in rows
        ]
        return {"type": kind, **{key: group for part in parts for key, group in part.items()}}
    if kind in _MAPS:
        key = _MAPS[kind]
        pairs = [
            (value, row.target_group or group)
            for row in rows
            for value, group in row.definition.get(key, {}).items()
        ]
        return {**first, key: dict(pairs)}
    if kind in _LISTS:
        joined = {**first, "rules": [rule for _, rule in sorted(_rules(rows), key=lambda pair: pair[0])]}
        joined.pop(POSITIONS, None)
        return joined
    return {**first} if rows[0].target_group is None else {**first, "targetGroup": rows[0].target_group}


def _rules(rows: list[RuleRow]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each rule with its position; rows that say none keep their own order."""
    counted = 0
    for row in rows:
        rules = row.definition.get("rules", [])
        positions = row.definition.get(POSITIONS) or range(counted, counted + len(rules))
        counted += len(rules)
        for position, rule in zip(positions, rules, strict=True):
            named = row.target_group is not None
            yield position, {**rule, "targetGroup": row.target_group} if named else {**rule}
