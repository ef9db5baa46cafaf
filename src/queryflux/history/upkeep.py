"""What is done to history now and then, by one process of those that share it: old records go, and how busy
clusters are is written down.

Who may do it is asked each time, so a process that dies is replaced at the next turn; a turn that fails is
missed, and logged once for each cause.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

from queryflux.history.port import ClusterSnapshot, DurableHistoryStore
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

RETENTION_SECS = 3600.0
SNAPSHOT_SECS = 5.0
_DAY = 86400.0
_NUMBERS = re.compile(r"\d+")
_REST = 0.9
"""Of an interval: nobody takes a turn again before that, whatever the phases of the processes."""

Sweep = Callable[[str, float], AbstractAsyncContextManager[bool]]
"""Of a sweep's name and how long it is not due again: whether it is ours to do now."""
Sample = Callable[[], Awaitable[Sequence[ClusterSnapshot]]]


@asynccontextmanager
async def alone(_name: str, _rest_secs: float) -> AsyncIterator[bool]:
    """The Sweep of a process that shares its history with no other."""
    yield True


async def keep_for_days(store: DurableHistoryStore, days: int, clock: Clock, sweep: Sweep) -> NoReturn:
    """Every hour, for the first time after one: delete what is older than so many days."""

    async def purge() -> None:
        purged = await store.purge(clock.now() - days * _DAY)
        if any(purged):
            log.info(
                "history: older than %d days and deleted: %d records, %d digests, %d snapshots", days, *purged
            )

    await _repeat(purge, "history-retention", RETENTION_SECS, clock, sweep)


async def snapshot_clusters(
    store: DurableHistoryStore, sample: Sample, clock: Clock, sweep: Sweep
) -> NoReturn:
    """Every 5 seconds: store how busy the clusters are."""

    async def write() -> None:
        await store.add_snapshots(await sample())

    await _repeat(write, "cluster-snapshots", SNAPSHOT_SECS, clock, sweep)


async def _repeat(
    work: Callable[[], Awaitable[None]], name: str, seconds: float, clock: Clock, sweep: Sweep
) -> NoReturn:
    failing = ""
    while True:
        await clock.sleep(seconds)
        try:
            async with sweep(name, seconds * _REST) as ours:
                if ours:
                    await work()
            failing = ""
        except StoreUnavailable as error:
            cause = _NUMBERS.sub("", str(error))  # as of seconds that are left
            if cause != failing:
                log.warning("%s: not done for now: %s", name, error)
            failing = cause
        except Exception:
            log.exception("%s: not done this time", name)
