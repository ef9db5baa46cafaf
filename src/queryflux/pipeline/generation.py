"""One compiled configuration. Immutable in what it decides; a query keeps the generation it started with."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from queryflux.admission.slots import Group, Member
from queryflux.engines.port import Engine
from queryflux.model.protocol import ClientProtocol
from queryflux.routing.chain import RouterChain
from queryflux.sql.translate import Translator

log = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupPlan:
    """A group as the pipeline uses it: admission's view of it, and its own settings."""

    admission: Group
    query_timeout_secs: float | None = None
    idle_in_transaction_secs: float = 60.0
    default_tags: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class Cluster:
    """A runtime cluster: its engine, and its member state, which all groups share."""

    engine: Engine
    member: Member


@dataclass(slots=True)
class Generation:
    """What a Snapshot compiles to."""

    revision: str
    chain: RouterChain
    groups: Mapping[str, GroupPlan]
    clusters: Mapping[str, Cluster]
    translator: Translator = field(default_factory=Translator)
    untagged_metrics: frozenset[str] = frozenset()
    """Tag keys that metrics leave out (``metrics.tagsDenyList``)."""

    native_everywhere: frozenset[ClientProtocol] = field(init=False)
    """Protocols that every engine speaks itself: its own catalog answers their catalog questions."""

    def __post_init__(self) -> None:
        spoken = {cluster.engine.native_protocol for cluster in self.clusters.values()}
        self.native_everywhere = frozenset(filter(None, spoken) if len(spoken) == 1 else ())

    def likely_engine(self, group: str) -> Engine | None:
        """The engine of the group's first usable member, or of its first."""
        members = self.groups[group].admission.members
        usable = [member for member in members if member.usable] or members
        return self.clusters[usable[0].name].engine if usable else None

    async def close(self) -> None:
        """Close every engine, and what translation holds; one that fails does not keep the others open."""
        closing = [cluster.engine.close() for cluster in self.clusters.values()]
        outcomes = await asyncio.gather(*closing, self.translator.close(), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                log.error("closing an engine failed", exc_info=outcome)
