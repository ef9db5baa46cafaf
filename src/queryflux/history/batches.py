"""Storing a batch of which a record may be one that the store refuses: it is found by halving."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from queryflux.history.port import HistoryStore
from queryflux.history.stored import StoredQuery, storable
from queryflux.model.errors import RecordsRefused

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """Records that are new, that the store had already, and that it refuses."""

    stored: int
    duplicates: int
    rejected: int


Send = Callable[[Sequence[StoredQuery]], Awaitable[Outcome]]
"""Brings a batch to who keeps it. Raises StoreUnavailable: parts of it may have been stored then, and to send
it again is safe. Raises RecordsRefused when one of its records, nobody knows which, can never be taken."""


def sending_to(store: HistoryStore) -> Send:
    """Into a store."""

    async def send(records: Sequence[StoredQuery]) -> Outcome:
        return Outcome(*await store.add_many(records), 0)

    return send


async def send_isolating(send: Send, records: Sequence[StoredQuery]) -> Outcome:
    """Send a batch; a record that can never be taken is logged and left out, after a try without characters
    that nobody may be able to keep. Raises StoreUnavailable: parts of the batch may have been stored then."""
    if not records:
        return Outcome(0, 0, 0)
    try:
        return await send(records)
    except RecordsRefused as error:
        if len(records) == 1:
            if (plain := storable(records[0])) is not records[0]:
                return await send_isolating(send, [plain])
            log.error("history does not take the record of query %s: %s", records[0].proxy_query_id, error)
            return Outcome(0, 0, 1)
    half = len(records) // 2
    first = await send_isolating(send, records[:half])
    second = await send_isolating(send, records[half:])
    return Outcome(*(a + b for a, b in zip(first, second, strict=True)))


async def add_isolating(store: HistoryStore, records: Sequence[StoredQuery]) -> Outcome:
    """Store a batch; what the store refuses is logged and left out. Raises StoreUnavailable as above."""
    return await send_isolating(sending_to(store), records)
