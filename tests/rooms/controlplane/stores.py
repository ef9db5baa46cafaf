"""A configuration store in a variable, whose saves can be overtaken."""

from collections.abc import AsyncGenerator, Callable

from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import Tables
from queryflux.model.errors import ConfigConflict


class OvertakenStore(ConfigStore):
    """Holds one configuration. What is in ``overtakes`` happens just before the next saves, one each."""

    def __init__(self) -> None:
        self.stored = StoredConfig(Tables(), 1, "one")
        self.overtakes: list[Callable[[], None]] = []
        self.saves = 0

    async def load(self) -> StoredConfig:
        return self.stored

    async def save(self, before: StoredConfig, after: Tables) -> StoredConfig:
        if self.overtakes:
            self.overtakes.pop(0)()
        if before.sequence != self.stored.sequence:
            raise ConfigConflict("somebody else was faster")
        if after != self.stored.tables:
            self.saves += 1
            self.stored = StoredConfig(after, before.sequence + 1, before.epoch)
        return self.stored

    async def revision(self) -> tuple[str, int]:
        return self.stored.epoch, self.stored.sequence

    async def changes(self) -> AsyncGenerator[None, None]:
        yield None

    async def holds(self, file: Snapshot) -> None:
        """Begin with what a file has."""
        await self.seed(file)
        self.saves = 0
