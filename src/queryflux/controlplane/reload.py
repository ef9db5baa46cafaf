"""Using what is stored: at the start, on notice of a change, and every so often in case a notice was lost.

A reload reads the store, prepares everything that the new configuration needs, and only then swaps. Whatever
fails on the way leaves the last good configuration in use, is counted by its stage, and is said until it is
over. Changes that come close together are one reload.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from queryflux.config.left_out import left_out
from queryflux.config.problems import in_short
from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.model.errors import QueryFluxError, StoreUnavailable
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

COALESCE_SECS = 0.2
"""How long a change waits for others."""
FIRST_RETRY_SECS = 1.0
LAST_RETRY_SECS = 30.0
"""Between attempts to read a store that cannot be reached."""
STOPPING = "this process is shutting down"

Swap = Callable[[], None]
"""Puts a configuration that was prepared into use, at once."""
Prepare = Callable[[StoredConfig], Awaitable[Swap]]
"""Makes all that a stored configuration needs. Raises PrepareFailed, or any other QueryFluxError."""
Use = Callable[[StoredConfig, float], None]
"""Is told that this is in use, and when (monotonic) the store began to say it: after every read."""


class PrepareFailed(QueryFluxError):
    """A configuration cannot be used. ``stage`` is what the failure is counted under."""

    code = "CONFIG"

    def __init__(self, stage: str, cause: QueryFluxError) -> None:
        super().__init__(in_short(cause), hint=cause.hint)
        self.stage = stage


@dataclass(frozen=True, slots=True)
class Following:
    """How this process stands to its store: what it uses, and ``since`` when (seconds since the epoch).
    ``failure``: why it does not use what is stored, and since when; empty: it does. ``stage`` is where that
    failed. ``warnings`` say what had to be left out of what is in use."""

    epoch: str
    sequence: int
    since: float
    failure: str = ""
    stage: str = ""
    failing_since: float | None = None
    warnings: tuple[str, ...] = ()


class Reloader:
    """Keeps a process at what its store says."""

    def __init__(
        self,
        store: ConfigStore,
        prepare: Prepare,
        *,
        clock: Clock,
        metrics: Metrics,
        interval_secs: float,
        used: Use = lambda stored, read_at: None,
    ) -> None:
        """``interval_secs`` is between two reads without notice; 0: none of these."""
        self._store = store
        self._prepare = prepare
        self._clock = clock
        self._metrics = metrics
        self._interval_secs = interval_secs
        self._used = used
        self._tasks = TaskGroup("configuration")
        self._wanted = asyncio.Event()
        self._one = asyncio.Lock()
        self._active: StoredConfig | None = None
        self._retry_secs = FIRST_RETRY_SECS
        self._retry: Timer | None = None
        self._closed = False
        self.state = Following("", 0, clock.now())

    def begin(self, stored: StoredConfig, swap: Swap, read_at: float) -> None:
        """Use a configuration for the first time, which was read and prepared already."""
        swap()
        self._use(stored, read_at)

    def want(self) -> None:
        """Reload soon: the store may have changed."""
        self._wanted.set()

    def follow(self) -> None:
        """From now on, reload by notice and by the clock."""
        self._tasks.spawn("notices", self._hear())
        self._tasks.spawn("reload", self._work())
        if self._interval_secs:
            self._tasks.spawn("poll", self._poll())

    async def apply(self) -> str:
        """Use what is stored now; gives the reason why that failed, or nothing. Never raises. It goes on when
        its caller is cancelled, and ends with ``close``."""
        if self._closed:
            return STOPPING
        applying = self._tasks.spawn("apply", self._apply())
        await asyncio.wait({applying})
        return STOPPING if applying.cancelled() else applying.result()

    async def _apply(self) -> str:
        async with self._one:
            self._retry_no_more()
            try:
                await self._reload()
            except StoreUnavailable as error:
                self._failed("load", error.message)
                self._retry_later()
            except PrepareFailed as error:
                self._failed(error.stage, error.message)
            except QueryFluxError as error:
                self._failed("reload", in_short(error))
            except Exception as error:
                log.exception("reloading the configuration failed inside QueryFlux")
                self._failed("reload", f"internal error: {type(error).__name__}")
            return self.state.failure

    async def close(self) -> None:
        """Stop following; a reload under way is given up."""
        self._closed = True
        await self._tasks.close()
        self._retry_no_more()

    # One reload.

    async def _reload(self) -> None:
        read_at = self._clock.monotonic()
        stored = await self._store.load()
        self._retry_secs = FIRST_RETRY_SECS
        active = self._active
        if active is None or stored.tables != active.tables:
            swap = await self._prepare(stored)
            swap()
            log.info("the configuration is at %d now", stored.sequence)
        self._use(stored, read_at)

    def _use(self, stored: StoredConfig, read_at: float) -> None:
        if self.state.failure:
            log.info("the configuration is in use again as it is stored")
        self._active = stored
        state = self.state
        known = (state.epoch, state.sequence) == (stored.epoch, stored.sequence)
        since = state.since if known else self._clock.now()
        warnings = tuple(it.said for it in left_out(stored.tables))
        self.state = Following(stored.epoch, stored.sequence, since, warnings=warnings)
        self._used(stored, read_at)

    def _failed(self, stage: str, reason: str) -> None:
        self._metrics.counter("queryflux_config_reload_failures_total", stage=stage).inc()
        state = self.state
        if (stage, reason) != (state.stage, state.failure):
            log.error("the configuration in use stays at %d (%s): %s", state.sequence, stage, reason)
        since = state.failing_since or self._clock.now()
        self.state = replace(state, failure=reason, stage=stage, failing_since=since)

    def _retry_later(self) -> None:
        self._retry = self._clock.call_later(self._retry_secs, self._wanted.set)
        self._retry_secs = min(self._retry_secs * 2, LAST_RETRY_SECS)

    def _retry_no_more(self) -> None:
        """One attempt is all that comes of a failure, however many others were made meanwhile."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # When to.

    async def _hear(self) -> None:
        async with aclosing(self._store.changes()) as changes:
            async for _ in changes:
                self._wanted.set()

    async def _poll(self) -> None:
        while True:
            await self._clock.sleep(self._interval_secs)
            self._wanted.set()

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            await self._clock.sleep(COALESCE_SECS)
            self._wanted.clear()
            await self.apply()
