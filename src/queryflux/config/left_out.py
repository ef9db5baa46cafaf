"""What of the stored rows this version cannot serve, and why."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

from msgspec.structs import replace

from queryflux.config.clusters import EngineKey
from queryflux.config.problems import Problem, render_path
from queryflux.config.tables import Tables, Unreadable

CLUSTERS = "clusters"
SECURITY = "auth"
"""The section of what is stored for ``auth`` and ``authorization``: one row."""
ROUTERS = "routers"
_ENGINES = frozenset(get_args(EngineKey))
_WORDS = {CLUSTERS: "cluster", "clusterGroups": "group", "scripts": "script"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One entry of a section that is stored and not served; ``name`` is empty for a section without entries.
    ``row``: nobody can read it, and nothing that is stored is served before it has been mended; None: another
    version serves it."""

    section: str
    name: str
    reason: str
    row: Unreadable | None = None

    @property
    def path(self) -> str:
        """Where it would stand in a document."""
        return render_path((self.section, self.name) if self.name else (self.section,))

    @property
    def remedy(self) -> str:
        """What an operator can do."""
        if self.row is None:
            return "edit it with the version that wrote it, or delete it"
        return "replace it whole (PUT), or delete it" if self.name else "replace it whole (PUT)"

    @property
    def said(self) -> str:
        """A sentence for operators."""
        what = f"{_WORDS[self.section]} {self.name}" if self.section in _WORDS else self.section
        return f"{what} is left out: {self.reason}"

    @property
    def problem(self) -> Problem:
        """What is to be mended."""
        return Problem(0, 0, self.path, self.reason, self.remedy)


def without(tables: Tables, leaving: Collection[LeftOut]) -> Tables:
    """``tables`` without some of what is left out; groups list it until somebody takes it out of them."""
    names = {it.name for it in leaving if it.section == CLUSTERS and it.row is None}
    gone = [it.row for it in leaving]
    return replace(
        tables,
        clusters=tuple(row for row in tables.clusters if row.name not in names),
        unreadable=tuple(row for row in tables.unreadable if row not in gone),
    )


def left_out(tables: Tables) -> tuple[LeftOut, ...]:
    """Clusters of an engine that this version has never heard of, for a newer one wrote them; and rows that
    cannot be read."""
    strange = (
        LeftOut(CLUSTERS, row.name, f"this version has no engine {row.engine_key!r}")
        for row in tables.clusters
        if row.engine_key not in _ENGINES
    )
    broken = (
        LeftOut(row.section, row.name, f"its row of {row.table} cannot be read: {row.reason}", row)
        for row in tables.unreadable
    )
    return (*strange, *broken)
