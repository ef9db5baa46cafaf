"""A stored configuration as rows, the same for every store; persistence turns them into SQL.

Rows hold secrets in clear, because the database does: their repr shows names only. Names of clusters and
groups stand where the database has ids.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

Json = Any
"""Generic JSON: dicts with text keys, lists, scalars."""


class Row(Struct, frozen=True, kw_only=True):
    """One row. ``id`` is None until a store has given it one."""

    id: int | None = None
    name: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ClusterRow(Row, frozen=True, kw_only=True):
    """``cluster_configs``. ``config`` has every key of the cluster that has no column."""

    engine_key: str
    enabled: bool = True
    max_running_queries: int | None = None
    config: Mapping[str, Json] = field(default_factory=dict)
    variants: tuple[Json, ...] = ()


class GroupRow(Row, frozen=True, kw_only=True):
    """``cluster_group_configs``. ``members`` and ``translation_scripts`` are names, in order; ``settings``
    has every key of the group that has no column."""

    enabled: bool = True
    members: tuple[str, ...] = ()
    max_running_queries: int | None = None
    max_queued_queries: int | None = None
    strategy: Mapping[str, Json] | None = None
    allow_groups: tuple[str, ...] = ()
    allow_users: tuple[str, ...] = ()
    translation_scripts: tuple[str, ...] = ()
    default_tags: Mapping[str, str | None] = field(default_factory=dict)
    capacity_wait_timeout_secs: float | None = None
    circuit_breaker: Mapping[str, Json] | None = None
    cache: Mapping[str, Json] | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)


class ScriptRow(Row, frozen=True, kw_only=True):
    """``user_scripts``."""

    description: str = ""
    kind: str
    body: str


class Unreadable(Row, frozen=True, kw_only=True):
    """A row of ``table`` whose values are not of the kinds that they have to be. It would be the entry
    ``name`` of a ``section`` of a document, or all of a section that has no entries; it stays as it is until
    somebody replaces it or takes it out."""

    section: str
    table: str
    reason: str

    def __repr__(self) -> str:
        return f"Unreadable({self.section!r}, {self.name!r})"


class RuleRow(Struct, frozen=True, kw_only=True):
    """``routing_rules``: the part of one router that leads to one group. ``target_group`` None: a script
    chooses, or the rule denies. The group is the row's, whatever ``definition`` still calls it."""

    router: int
    slice: int
    definition: Mapping[str, Json]
    target_group: str | None = None

    def __repr__(self) -> str:
        return f"RuleRow({self.router}.{self.slice} -> {self.target_group!r})"


class RoutingRow(Struct, frozen=True, kw_only=True):
    """``routing_settings``. ``active``: the stored rules count, and not those of the file."""

    fallback: str = ""
    active: bool = False


class Tables(Struct, frozen=True, kw_only=True):
    """Everything of a configuration that a store keeps. What is empty overrides nothing: ``security``
    without keys, ``guardrails`` without rows, a key that ``settings`` does not have."""

    clusters: tuple[ClusterRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    routing: RoutingRow = RoutingRow()
    rules: tuple[RuleRow, ...] = ()
    security: Mapping[str, Json] = field(default_factory=dict)
    guardrails: Mapping[str, Json] = field(default_factory=dict)
    """Lists of guards by kind: ``global``, or the name of a group."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """``proxy_settings``: values by key."""
    scripts: tuple[ScriptRow, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def entries_unreadable(self, section: str) -> tuple[Unreadable, ...]:
        """Those of one section."""
        return tuple(row for row in self.unreadable if row.section == section)

    def __repr__(self) -> str:
        return f"Tables({len(self.clusters)} clusters, {len(self.groups)} groups)"
