"""One compiled configuration. Immutable in what it decides; a query keeps the generation that admitted it."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from queryflux.admission.slots import Group, Member
from queryflux.engines.port import Engine
from queryflux.history.redaction import Redaction
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.fixups import FixUps
from queryflux.routing.chain import RouterChain
from queryflux.scripts.host import ScriptHost
from queryflux.sql.translate import Translator

log = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupPlan:
    """A group as the pipeline uses it: admission's view of it, and its own settings."""

    admission: Group
    enabled: bool = True
    query_timeout_secs: float | None = None
    idle_in_transaction_secs: float = 60.0
    default_tags: Mapping[str, str | None] = field(default_factory=dict)
    fix_ups: FixUps | None = None
    """Scripts that change translated SQL; None: there are none."""


@dataclass(slots=True)
class Cluster:
    """A runtime cluster: its engine, and its member state, which all groups share."""

    engine: Engine
    member: Member
    holders: int = 0
    """Questions under way that are not queries: about the catalog, or for the shape of a statement."""


@dataclass(slots=True)
class Generation:
    """What a Snapshot compiles to."""

    revision: str
    chain: RouterChain
    groups: Mapping[str, GroupPlan]
    clusters: dict[str, Cluster]
    translator: Translator = field(default_factory=Translator)
    scripts: ScriptHost | None = None
    """Where its scripts run, if it has any."""
    untagged_metrics: frozenset[str] = frozenset()
    """Tag keys that metrics leave out (``metrics.tagsDenyList``)."""
    redaction: Redaction = Redaction.NONE
    """What records of queries may say, from the moment that the generation is in use."""

    holders: int = 0
    """Questions under way that are not queries and use its translator."""

    native_everywhere: frozenset[ClientProtocol] = field(init=False)
    """Protocols that every engine speaks itself: its own catalog answers their catalog questions."""

    fixes: bool = field(init=False)
    """Scripts change the SQL of some group."""

    def __post_init__(self) -> None:
        self.fixes = any(plan.fix_ups is not None for plan in self.groups.values())
        spoken = {cluster.engine.native_protocol for cluster in self.clusters.values()}
        self.native_everywhere = frozenset(filter(None, spoken) if len(spoken) == 1 else ())

    def likely_engine(self, group: str) -> Engine | None:
        """The engine of the group's first usable member, or of its first."""
        members = self.groups[group].admission.members
        usable = [member for member in members if member.usable] or members
        return self.clusters[usable[0].name].engine if usable else None

    async def close(self) -> None:
        """Close every engine, and what translation and scripts hold; one that fails does not keep the others
        open."""
        closing = [cluster.engine.close() for cluster in self.clusters.values()]
        if self.scripts is not None:
            closing.append(self.scripts.close())
        outcomes = await asyncio.gather(*closing, self.translator.close(), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                log.error("closing an engine failed", exc_info=outcome)


T = TypeVar("T", Generation, Cluster)


@contextmanager
def held(what: T) -> Iterator[T]:
    """Keep it from being closed under a question that is not a query."""
    what.holders += 1
    try:
        yield what
    finally:
        what.holders -= 1
