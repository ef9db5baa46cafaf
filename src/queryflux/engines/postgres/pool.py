"""The server connections of one cluster: at most ``size``, last used first, waiters served in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from queryflux.engines.postgres.settings import Settings
from queryflux.model.errors import EngineUnavailable
from queryflux.runtime.clock import Clock

WAIT_LIMIT = 60.0
"""Seconds to wait for a connection before giving up."""
IDLE_LIMIT = 600.0
"""Seconds after which an idle connection is not trusted any more: firewalls forget them in silence."""
CHECK_AFTER = 0.01
"""Seconds of idleness after which a connection is polled before use."""


class Pooled(Protocol):
    """A connection that a pool can keep."""

    settings: Settings | None
    idle_since: float
    broken: bool

    @property
    def usable(self) -> bool:
        """Nothing speaks against giving it to the next client."""

    @property
    def gone(self) -> bool:
        """It is known to be closed."""

    def disturbed(self) -> bool:
        """Whether the server said anything, or left, while it lay idle."""

    def close(self) -> None:
        """Say goodbye and close. Does not wait."""

    def abort(self) -> None:
        """Close at once. Does not wait."""


L = TypeVar("L", bound=Pooled)


class Pool(Generic[L]):
    """Hands out links. A waiter gets a link, or None: then there is room for a new one, already counted."""

    def __init__(self, where: str, size: int, opener: Callable[[], Awaitable[L]], clock: Clock) -> None:
        self._where = where
        self._size = size
        self._open = opener
        self._clock = clock
        self._idle: list[L] = []
        self._waiters: deque[asyncio.Future[L | None]] = deque()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """Connections that exist or are being opened."""
        return self._count

    @property
    def idle(self) -> int:
        """Connections that nobody uses."""
        return len(self._idle)

    def ready(self, settings: Settings) -> L | None:
        """The connection that came back last, if it is as a moment ago another statement left it and has
        these very settings; else ask ``take``."""
        idle = self._idle
        if idle:
            link = idle[-1]
            if (
                link.settings is settings
                and not link.gone
                and self._clock.monotonic() - link.idle_since < CHECK_AFTER
            ):
                return idle.pop()
        return None

    def take(self, settings: Settings) -> L | None:
        """An idle connection, at once; None when there is none."""
        idle = self._idle
        now = self._clock.monotonic()
        while idle:
            link = idle.pop()
            if link.settings != settings:
                link = self._better(link, settings)
            age = now - link.idle_since
            if age < CHECK_AFTER and link.usable:
                return link
            if age < IDLE_LIMIT and link.usable and not link.disturbed():
                return link
            self._count -= 1
            link.close()
        return None

    def _better(self, link: L, settings: Settings) -> L:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index].settings == settings:
                self._idle[index], link = link, self._idle[index]
                return link
        return link

    async def acquire(self, settings: Settings) -> L:
        """A connection: an idle one, a new one, or the next that comes back.

        Raises EngineUnavailable.
        """
        self._check_open()
        link = self.take(settings) if not self._waiters else None
        if link is not None:
            return link
        if self._count >= self._size:
            link = await self._wait()
            if link is not None:
                return link
        else:
            self._count += 1
        try:
            link = await self._open()
        except BaseException:
            self._room()
            raise
        try:
            self._check_open()
        except EngineUnavailable:
            self.drop(link)
            raise
        return link

    def keep(self, acquired: "asyncio.Task[L]") -> None:
        """Whoever wanted what this task acquires has gone: it stops, or what it has got comes back."""
        if not acquired.done():
            acquired.cancel()
        elif not acquired.cancelled() and acquired.exception() is None:
            self.give(acquired.result())

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable(f"The cluster at {self._where} is being taken out of service")

    async def _wait(self) -> L | None:
        waiter: asyncio.Future[L | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        timer = self._clock.call_later(WAIT_LIMIT, lambda: self._refuse(waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                handed = waiter.result()
                if handed is None:
                    self._room()
                else:
                    self.give(handed)
            raise
        finally:
            timer.cancel()

    def _refuse(self, waiter: asyncio.Future[L | None]) -> None:
        if not waiter.done():
            waiter.set_exception(
                EngineUnavailable(
                    f"All {self._size} connections to PostgreSQL at {self._where} are in use",
                    hint="Raise poolSize, or look for clients that keep transactions or session state open.",
                )
            )

    def _next_waiter(self) -> asyncio.Future[L | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def give(self, link: L) -> None:
        """Take a connection back: to the next waiter, to the idle ones, or out when it cannot be used."""
        if not link.usable or self._closed:
            self.drop(link)
            return
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(link)
            return
        link.idle_since = self._clock.monotonic()
        self._idle.append(link)

    def back(self, link: L) -> None:
        """``give`` for one from ``ready`` that a statement has left as it was."""
        if link.gone or self._waiters or self._closed:
            self.give(link)
        else:
            link.idle_since = self._clock.monotonic()
            self._idle.append(link)

    def drop(self, link: L) -> None:
        """Close a connection that was handed out."""
        if link.broken:
            link.abort()
        else:
            link.close()
        self._room()

    def _room(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(None)
        else:
            self._count -= 1

    def close(self) -> None:
        """Close what is idle and refuse who waits; what is handed out closes when it comes back."""
        self._closed = True
        while self._idle:
            self._count -= 1
            self._idle.pop().close()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(EngineUnavailable(f"The cluster at {self._where} is being closed"))
