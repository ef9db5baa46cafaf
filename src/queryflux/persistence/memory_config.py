"""A configuration kept by this process, gone when it ends."""

import uuid
from collections.abc import AsyncGenerator

from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import Tables
from queryflux.model.errors import ConfigConflict
from queryflux.persistence.notices import Notices
from queryflux.persistence.numbering import check_references, numbered


class MemoryConfigStore(ConfigStore):
    """Tables in a variable."""

    def __init__(self) -> None:
        self._stored = StoredConfig(Tables(), 0, str(uuid.uuid4()))
        self._next_id = 1
        self._notices = Notices()

    async def load(self) -> StoredConfig:
        return self._stored

    async def save(self, before: StoredConfig, after: Tables) -> StoredConfig:
        stored = self._stored
        if (before.epoch, before.sequence) != (stored.epoch, stored.sequence):
            raise ConfigConflict("the configuration has changed meanwhile", hint="read it again")
        if after == stored.tables:
            return stored
        check_references(after)
        tables, self._next_id = numbered(after, self._next_id)
        self._stored = StoredConfig(tables, stored.sequence + 1, stored.epoch)
        self._notices.ring()
        return self._stored

    async def revision(self) -> tuple[str, int]:
        return self._stored.epoch, self._stored.sequence

    def changes(self) -> AsyncGenerator[None, None]:
        return self._notices.listen()
