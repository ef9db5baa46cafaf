"""Editing the stored configuration of a QueryFlux under test, as another process would."""

from collections.abc import Callable, Collection

from queryflux.config.candidate import read_document
from queryflux.config.rows import updated
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.model.errors import ConfigConflict
from tests.kit.serving import Serving

Change = Callable[[Snapshot], Snapshot]


async def edit(store: ConfigStore, file: Snapshot, change: Change, sections: Collection[str]) -> StoredConfig:
    """One edit that is not checked; tried again while others write."""
    while True:
        stored = await store.load()
        document, _ = stored.document(file)
        after = updated(stored.tables, change(read_document(document)), sections)
        try:
            return await store.save(stored, after)
        except ConfigConflict:
            continue


def edit_in(serving: Serving, change: Change, *sections: str) -> StoredConfig:
    """An edit through the store of a running QueryFlux."""
    standalone = serving.standalone
    return serving.call(edit, standalone.stores.config, standalone.file, change, sections)


def sequence_of(serving: Serving) -> int:
    """Where it says it is."""
    return serving.standalone.reloader.state.sequence


def failure_of(serving: Serving) -> str:
    """Why it does not use what is stored."""
    return serving.standalone.reloader.state.failure
