"""Tables out of the JSON that PostgreSQL gives: all that can be read, and what cannot by its name.

The columns are JSON, and whoever has the database can put anything there: one such row must not hide the
others, nor who could mend it.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from queryflux.config.left_out import ROUTERS, SECURITY
from queryflux.config.tables import (
    ClusterRow,
    GroupRow,
    Json,
    RoutingRow,
    Row,
    RuleRow,
    ScriptRow,
    Tables,
    Unreadable,
)

MEMBERS = "members"
"""Key of a group's settings that holds its members by name, where some are variants: ids know none."""
SECTIONS = {"clusters": "clusters", "groups": "clusterGroups", "scripts": "scripts", "rules": ROUTERS}
"""The section of a document that rows of a kind belong to."""
_NAMED: tuple[tuple[str, str, type[Row]], ...] = (
    ("clusters", "cluster_configs", ClusterRow),
    ("groups", "cluster_group_configs", GroupRow),
    ("scripts", "user_scripts", ScriptRow),
)

T = TypeVar("T")
_Note = Callable[[Unreadable], None]


def read_tables(text: str) -> Tables:
    """The tables. What cannot be read is among ``unreadable``."""
    try:
        tables = msgspec.json.decode(text, type=Tables)
        return replace(tables, groups=tuple(_with_variants(row) for row in tables.groups))
    except msgspec.ValidationError:
        return _piece_by_piece(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))


def _piece_by_piece(parts: dict[str, msgspec.Raw]) -> Tables:
    unreadable: list[Unreadable] = []
    note = unreadable.append
    fields: dict[str, Any] = {
        kind: tuple(_named(parts[kind], SECTIONS[kind], table, of, note)) for kind, table, of in _NAMED
    }
    fields["rules"] = tuple(_rules(parts["rules"], note))
    fields["routing"] = _single(
        parts["routing"], RoutingRow, RoutingRow(), (ROUTERS, "routing_settings"), note
    )
    fields["security"] = _single(
        parts["security"], dict[str, Json], {}, (SECURITY, "security_settings"), note
    )
    for kind in ("guardrails", "settings"):  # the database makes objects of these
        fields[kind] = msgspec.json.decode(parts[kind], type=dict[str, Json])
    return Tables(**fields, unreadable=tuple(unreadable))


def _named(rows: msgspec.Raw, section: str, table: str, of: type[Row], note: _Note) -> Iterator[Row]:
    for raw in msgspec.json.decode(rows, type=list[msgspec.Raw]):
        try:
            row = msgspec.json.decode(raw, type=of)
            yield _with_variants(row) if isinstance(row, GroupRow) else row
        except msgspec.ValidationError as error:
            # Of their own columns, which are of no other kind.
            known = msgspec.json.decode(raw)
            it = Unreadable(
                id=known["id"], name=known["name"], section=section, table=table, reason=str(error)
            )
            note(it)


def _rules(rows: msgspec.Raw, note: _Note) -> Iterator[RuleRow]:
    """Rules have no names: one that cannot be read stands for all of them."""
    for raw in msgspec.json.decode(rows, type=list[msgspec.Raw]):
        try:
            yield msgspec.json.decode(raw, type=RuleRow)
        except msgspec.ValidationError as error:
            known = msgspec.json.decode(raw)
            reason = f"router {known['router']}, slice {known['slice']}: {error}"
            note(Unreadable(name="", section=ROUTERS, table="routing_rules", reason=reason))


def _single(raw: msgspec.Raw, of: type[T], otherwise: T, place: tuple[str, str], note: _Note) -> T:
    try:
        return msgspec.json.decode(raw, type=of)
    except msgspec.ValidationError as error:
        section, table = place
        note(Unreadable(name="", section=section, table=table, reason=str(error)))
        return otherwise


def _with_variants(row: GroupRow) -> GroupRow:
    """Raises msgspec.ValidationError."""
    if MEMBERS not in row.settings:
        return row
    settings = {key: value for key, value in row.settings.items() if key != MEMBERS}
    return replace(row, members=msgspec.convert(row.settings[MEMBERS], tuple[str, ...]), settings=settings)
