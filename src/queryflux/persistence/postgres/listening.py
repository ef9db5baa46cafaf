"""LISTEN on a connection of its own, which is made again when it breaks.

A notice is only a hint. Whenever the connection is new, notices may have been missed, so that counts as one.
A connection that is cut without a word looks like one on which nothing happens, so it is asked now and then.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import TYPE_CHECKING

from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock

if TYPE_CHECKING:
    import asyncpg

log = logging.getLogger(__name__)

RETRY_SECS = 2.0
"""Longest pause between two attempts: that is how late a configuration may come once the database is back.
Each pause is at least half of it, by chance, so that not all processes come at the same moment."""
SILENCE_SECS = 30.0
"""After so long without a notice the connection is asked whether it still is one."""
ANSWER_SECS = 3.0


class Listening:
    """One channel."""

    def __init__(
        self,
        connect: Callable[[], "AbstractAsyncContextManager[asyncpg.Connection]"],
        channel: str,
        clock: Clock,
        chance: Random | None = None,
    ) -> None:
        """``connect`` opens a connection for as long as it is used."""
        self._connect = connect
        self._channel = channel
        self._clock = clock
        self._chance = chance or Random()

    async def notices(self) -> AsyncGenerator[None, None]:
        """Yields after each notice, several that come together once, and after each new connection."""
        told = False
        while True:
            try:
                async with self._connect() as connection:
                    ear = await self._listen(connection)
                    told = False
                    while not connection.is_closed():
                        if await ear.hears(self._clock):
                            yield
                        elif not connection.is_closed():
                            await connection.fetchval("SELECT 1", timeout=ANSWER_SECS)
                log.warning("the connection that listens for changes broke; making another")
            except StoreUnavailable as error:
                if not told:
                    told = True
                    log.warning("cannot listen for changes, trying again: %s", error.message)
            except Exception:
                log.exception("listening for changes failed inside QueryFlux; trying again")
            await self._clock.sleep(RETRY_SECS * self._chance.uniform(0.5, 1))

    async def _listen(self, connection: "asyncpg.Connection") -> "_Ear":
        ear = _Ear()
        connection.add_termination_listener(ear.ended)
        async with asyncio.timeout(ANSWER_SECS):
            await connection.add_listener(self._channel, ear.noticed)
        return ear


class _Ear:
    """What was heard on one connection; being new counts."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._wake.set()
        self._notice = True

    def noticed(self, *_: object) -> None:
        self._notice = True
        self._wake.set()

    def ended(self, _: object) -> None:
        self._wake.set()

    async def hears(self, clock: Clock) -> bool:
        """True after a notice; False after long silence, or when the connection has ended."""
        timer = clock.call_later(SILENCE_SECS, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()
        heard, self._notice = self._notice, False
        return heard
