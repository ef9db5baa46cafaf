"""Where a configuration is kept beyond a file: the port that every store implements.

An edit is: ``load``, change the tables (config/rows.py), check the whole document that comes of it
(config/candidate.py), ``save``. A save writes what differs in one transaction and counts as one change;
somebody else's change in between makes it a ConfigConflict, and the edit begins again.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from queryflux.config.left_out import left_out
from queryflux.config.problems import ConfigProblems
from queryflux.config.rows import document_over, seeded
from queryflux.config.snapshot import Snapshot
from queryflux.config.tables import Tables
from queryflux.model.errors import ConfigConflict


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """One consistent read. ``sequence`` grows with every change of one ``epoch``, which is new when the
    store is new; between epochs it says nothing."""

    tables: Tables
    sequence: int
    epoch: str

    def document(self, file: Snapshot) -> tuple[dict[str, Any], list[str]]:
        """The document that the tables and a file make together, and notes of what was left out. Raises
        ConfigProblems for rows that cannot be read."""
        broken = [it.problem for it in left_out(self.tables) if it.row is not None]
        if broken:
            raise ConfigProblems(broken)
        return document_over(self.tables, file)


class ConfigStore(ABC):
    """A configuration store. Every method raises StoreUnavailable when it cannot be reached."""

    @abstractmethod
    async def load(self) -> StoredConfig:
        """Everything, as of one moment; rows that cannot be read stand among ``Tables.unreadable``. Raises
        ConfigError when nothing can be made of it at all."""

    @abstractmethod
    async def save(self, before: StoredConfig, after: Tables) -> StoredConfig:
        """Make ``after`` of ``before``, which ``load`` or ``save`` gave: what differs is written, all or
        nothing, and the sequence grows by one. Nothing differs: nothing happens. Raises ConfigConflict when
        the store has changed since, ConfigError when it cannot hold a value."""

    @abstractmethod
    async def revision(self) -> tuple[str, int]:
        """Epoch and sequence as they are now."""

    @abstractmethod
    def changes(self) -> AsyncGenerator[None, None]:
        """Yields when the store may have changed: on notice of a change, and whenever notices may have been
        missed, so also once at the beginning. Goes on through failures; ends only when its caller ends it."""

    async def seed(self, file: Snapshot) -> StoredConfig:
        """Add the clusters and groups of a file that are not there yet, and load. Several processes may seed
        at the same time. Nothing is added where rows cannot be read."""
        while True:
            stored = await self.load()
            if stored.tables.unreadable:
                return stored
            try:
                return await self.save(stored, seeded(stored.tables, file))
            except ConfigConflict:
                continue
