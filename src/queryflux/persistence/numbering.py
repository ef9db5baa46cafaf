"""What a database does for its rows and other stores do themselves: ids, references that lead somewhere."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from queryflux.config.tables import Row, Tables
from queryflux.config.variants import base_name
from queryflux.model.errors import ConfigError

R = TypeVar("R", bound=Row)


def numbered(tables: Tables, next_id: int) -> tuple[Tables, int]:
    """``tables`` with an id for each row that has none, from ``next_id`` on, and the next one to give."""

    def number(rows: Iterable[R]) -> tuple[R, ...]:
        nonlocal next_id
        result = []
        for row in rows:
            if row.id is None:
                row = replace(row, id=next_id)
                next_id += 1
            result.append(row)
        return tuple(result)

    clusters, groups, scripts = number(tables.clusters), number(tables.groups), number(tables.scripts)
    return replace(tables, clusters=clusters, groups=groups, scripts=scripts), next_id


def check_references(tables: Tables) -> None:
    """Names are there once, members are clusters (or their variants), scripts exist, rules lead to groups.
    Raises ConfigError."""
    for what, section, rows in (
        ("cluster", "clusters", tables.clusters),
        ("group", "clusterGroups", tables.groups),
        ("script", "scripts", tables.scripts),
    ):
        names = [row.name for row in (*rows, *tables.entries_unreadable(section))]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"there are two rows for {what} {twice!r}")
    clusters = {row.name for row in (*tables.clusters, *tables.entries_unreadable("clusters"))}
    scripts = {row.name for row in (*tables.scripts, *tables.entries_unreadable("scripts"))}
    for group in tables.groups:
        for member in group.members:
            if member not in clusters and base_name(member) not in clusters:
                raise ConfigError(f"group {group.name!r} lists {member!r}, and there is no such cluster")
        for name in group.translation_scripts:
            if name not in scripts:
                raise ConfigError(f"group {group.name!r} lists script {name!r}, and there is no such script")
    groups = {row.name for row in (*tables.groups, *tables.entries_unreadable("clusterGroups"))}
    for rule in tables.rules:
        if rule.target_group is not None and rule.target_group not in groups:
            raise ConfigError(
                f"router {rule.router} leads to {rule.target_group!r}, and there is no such group"
            )
