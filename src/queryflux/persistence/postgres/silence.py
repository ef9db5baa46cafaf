"""Connections that have fallen silent: a statement was lost on its way, or its answer was, and nobody says.

A network that forgets a connection, or an address that moves to another server, tells neither end; and a
statement that takes long may as well wait for a lock. So the database is asked over a new connection what the
sessions in question do. One that is not there, or waits for us while we wait for it, is silent, and is cut.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

import asyncpg

from queryflux.persistence.postgres.faults import fault_of
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

PATIENCE_SECS = 0.5
"""A statement that takes longer is looked after."""
AGAIN_SECS = 0.25
"""Pause between two looks."""
LOOK_SECS = 1.0
"""Longest time to connect for a look, and longest look."""
SURE_SECS = 0.25
"""A session must have waited for so long, and for the time that it took us to connect: answers travel."""

PROBE_AFTER_SECS, PROBE_SECS, PROBES = 15, 5, 3
"""When the system asks the other end of an idle connection for a sign of life, how often, how many times."""
UNHEARD_SECS = 5
"""What was sent and not confirmed by the other end's system for so long breaks the connection."""

# A pooler in between has numbers of its own for sessions: then nothing is known.
SILENT = """
SELECT asked.pid
FROM unnest($1::int[]) AS asked (pid) LEFT JOIN pg_stat_activity AS session ON session.pid = asked.pid
WHERE pg_backend_pid() = $2
    AND (session.pid IS NULL
        OR session.state LIKE 'idle%' AND session.state_change < clock_timestamp() - $3::interval)
"""

Connect = Callable[[float], Awaitable["asyncpg.Connection"]]
"""Opens a connection within so many seconds. Raises what the driver raises."""


class AttentiveConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that breaks when the other end's system does not confirm what it is sent."""

    __slots__ = ()

    def __init__(self, protocol: Any, transport: asyncio.Transport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        found = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            watch_closely(found)


def watch_closely(connected: socket.socket) -> None:
    """Have the system notice a dead peer, as far as it can."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": PROBE_AFTER_SECS,
        "TCP_KEEPINTVL": PROBE_SECS,
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": UNHEARD_SECS * 1000,
    }
    for name, value in options.items():
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class Watch:
    """Looks after the statements of one pool."""

    def __init__(self, pool: str, connect: Connect, clock: Clock) -> None:
        """``connect`` opens a connection outside the pool."""
        self._pool = pool
        self._connect = connect
        self._clock = clock
        self._since: dict[asyncpg.Connection, float] = {}
        self._timer: Timer | None = None
        self._tasks = TaskGroup(f"watch over the {pool} pool")

    def begin(self, connection: "asyncpg.Connection") -> None:
        """Statements run on it from now on, one after another without a pause."""
        self._since[connection] = self._clock.monotonic()
        self._wait()

    def end(self, connection: "asyncpg.Connection") -> None:
        """No more; harmless when none did."""
        self._since.pop(connection, None)

    async def close(self) -> None:
        """Look no more."""
        self._since.clear()
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    def _wait(self) -> None:
        """Until the first of them has taken long."""
        if self._since and self._timer is None and not self._tasks:
            due = min(self._since.values()) + PATIENCE_SECS - self._clock.monotonic()
            self._timer = self._clock.call_later(max(due, 0.01), self._due)

    def _due(self) -> None:
        self._timer = None
        if self._slow():
            self._tasks.spawn("look", self._look()).add_done_callback(lambda task: self._wait())
        else:
            self._wait()

    def _slow(self) -> "dict[int, asyncpg.Connection]":
        """Those that have taken long, by the number of their session."""
        before = self._clock.monotonic() - PATIENCE_SECS
        slow = (it for it, since in self._since.items() if since <= before and not it.is_closed())
        return {it.get_server_pid(): it for it in slow}

    async def _look(self) -> None:
        """For as long as something is slow."""
        while self._slow():
            connection: asyncpg.Connection | None = None
            begun = self._clock.monotonic()
            try:
                connection = await self._connect(LOOK_SECS)
                away = self._clock.monotonic() - begun
                while slow := self._slow():
                    for pid in await silent(connection, slow, SURE_SECS + away):
                        self._cut(slow[pid])
                    await self._clock.sleep(AGAIN_SECS)
            except Exception as error:
                if fault_of(error, connection) is None:
                    raise
                log.debug("the %s pool cannot look after its connections: %s", self._pool, error)
                await self._clock.sleep(AGAIN_SECS)  # it is away; what is lost is cut when it is back
            finally:
                if connection is not None:
                    connection.terminate()

    def _cut(self, connection: "asyncpg.Connection") -> None:
        if connection in self._since and not connection.is_closed():
            log.warning("a connection of the %s pool has fallen silent and is given up", self._pool)
            connection.terminate()


async def silent(connection: "asyncpg.Connection", pids: Iterable[int], waited_secs: float) -> list[int]:
    """Those sessions that the server does not have, or that have waited for us for so long."""
    own, waited = connection.get_server_pid(), timedelta(seconds=waited_secs)
    rows = await connection.fetch(SILENT, list(pids), own, waited, timeout=LOOK_SECS)
    return [pid for (pid,) in rows]
