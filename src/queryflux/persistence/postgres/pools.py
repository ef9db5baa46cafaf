"""Connections to our own database: a pool for the state of queries, one for capacity, one for the admin API
and what runs in the background, and connections that listen.

The pools share nothing, so that one whose connections are all stuck keeps nobody else waiting. Connections
are opened when they are needed and closed when they were not for a while. Whoever waits for one is served in
order."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import asyncpg

from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.persistence.postgres.faults import Fault, fault_of, is_broken_off, unavailable
from queryflux.persistence.postgres.silence import AttentiveConnection, Connect, Watch
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

CONNECT_SECS = 10.0
"""Longest time to make a connection."""
GRACE_SECS = 5.0
"""How much later than the server we end a statement."""
CLOSE_SECS = 1.0
"""How long a connection may take to close, which is a matter of politeness."""
COORDINATION_SECS = 5
"""Longest statement about capacity, which takes a millisecond, where nothing else is configured."""
COORDINATION_CONNECT_SECS = 2.0
COORDINATION_GRACE_SECS = 1.0
"""As the two above for capacity: what is lost is given up soon, so that queries go on soon after the database
answers again."""
LISTEN_CONNECT_SECS = 2.0
"""As CONNECT_SECS for the connection that listens, which is tried for again and again."""
IDLE_SECS = 300.0
"""A connection that nobody needed for so long is closed."""
IDLE_IN_TRANSACTION_SECS = 60
"""The server ends a transaction of a process that has stopped, so that its locks hold up nobody."""
WAIT_SHARE = 2 / 3
"""Of a call's time, how much may go by before a connection is free: with less than the rest for it a server
that answers would seem silent."""

CLOSED = Fault("QueryFlux has closed its connections to its database")


class NoneFree(StoreUnavailable):
    """All connections of a pool were in use: nothing was asked of the database, which may well answer."""

    busy = True


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Most connections of each pool; the one that listens comes on top."""

    query: int = 6
    coordination: int = 8
    admin: int = 2


def pool_sizes(settings: PostgresPersistence) -> PoolSizes:
    """The sizes by the three rules: explicit keys win; ``poolSize`` alone is split as it always was; nothing
    set gives the defaults. Raises ConfigError when ``poolSize`` is too small to be split."""
    given = (settings.query_pool_size, settings.coordination_pool_size, settings.admin_pool_size)
    if settings.pool_size is None or any(given):
        usual = PoolSizes()
        query, coordination, admin = given
        return PoolSizes(query or usual.query, coordination or usual.coordination, admin or usual.admin)
    budget = settings.pool_size - 1
    if budget < 3:
        raise ConfigError(
            f"queryflux.persistence.poolSize is {settings.pool_size}; at least 4 are needed",
            hint="one for each of the three pools, and one that listens",
        )
    fifth = max(1, budget * 20 // 100)
    return PoolSizes(budget - 2 * fifth, fifth, fifth)


class Pool:
    """Connections to one database, at most ``size`` of them."""

    def __init__(
        self, name: str, size: int, connect: Connect, timeout: float, clock: Clock, metrics: Metrics
    ) -> None:
        """``timeout``: seconds that a caller waits for a connection, its making included; 0: without end."""
        self.name = name
        self.size = size
        self._connect = connect
        self._timeout = timeout or float("inf")
        self._clock = clock
        self._open = 0
        self._idle: deque[tuple[asyncpg.Connection, float]] = deque()
        self._out: set[asyncpg.Connection] = set()
        self._waiting: OrderedDict[asyncio.Future[asyncpg.Connection | None], None] = OrderedDict()
        self._tasks = TaskGroup(f"pool {name}")
        self._watch = Watch(name, connect, clock)
        self._tidy: Timer | None = None
        self._closed = False
        self._failing = False
        self._reached = False
        self._connections = metrics.gauge("queryflux_store_pool_connections", pool=name)
        self._in_use = metrics.gauge("queryflux_store_pool_in_use", pool=name)
        self._queue = metrics.gauge("queryflux_store_pool_waiting", pool=name)

    def connection(self, *, watched: bool = False, within: float | None = None) -> "Borrowed":
        """A connection for the time of an ``async with``. Raises StoreUnavailable when there is none in
        time, and for what goes wrong inside when that says that the database cannot be asked; other errors
        pass. A connection on which a statement was broken off is closed, and the statement cancelled.

        ``watched``, for statements without pauses between them: one whose connection has fallen silent is
        given up as soon as the database answers on another (silence.Watch). ``within``: seconds for all of
        it, the wait for a connection included (at most WAIT_SHARE), after which the database counts as one
        that does not answer."""
        return Borrowed(self, self._watch if watched else None, within)

    async def close(self) -> None:
        """Close every connection, also those in use, whose users get StoreUnavailable."""
        self._closed = True
        while self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if not waiter.done():
                waiter.set_exception(unavailable(CLOSED))
        if self._tidy is not None:
            self._tidy.cancel()
        while self._idle:
            self._tasks.spawn("close", self._close(self._idle.popleft()[0]))
        for connection in self._out:
            connection.terminate()
        await self._watch.close()
        await self._tasks.wait()

    async def take(self, within: float | None = None) -> "asyncpg.Connection":
        """What ``connection`` gives; to be handed to ``give``."""
        timeout = self._timeout if within is None else min(self._timeout, within)
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return self._taken(connection)
            self._count(-1)
        if self._closed:
            raise unavailable(CLOSED)
        if self._open < self.size:
            self._count(1)
            return await self._opened(timeout)
        since = self._clock.monotonic()
        handed = await self._handed(timeout if within is None else min(timeout, within * WAIT_SHARE))
        if handed is not None:
            return self._taken(handed)
        return await self._opened(timeout - (self._clock.monotonic() - since))

    def give(self, connection: "asyncpg.Connection", fault: Fault | None, broken_off: bool) -> None:
        """Take a connection back, after what went wrong with it."""
        self._out.discard(connection)
        self._in_use.dec()
        if fault is not None and fault.elsewhere:
            connection.terminate()
            self._drop_idle()
        if connection.is_closed():
            self._count(-1)
            self._pass_on(None)
        elif self._closed or broken_off or (fault and not fault.sound) or connection.is_in_transaction():
            self._tasks.spawn("close", self._close(connection))
        else:
            self._pass_on(connection)

    def _taken(self, connection: "asyncpg.Connection") -> "asyncpg.Connection":
        self._out.add(connection)
        self._in_use.inc()
        return connection

    def _count(self, change: int) -> None:
        self._open += change
        self._connections.set(self._open)

    async def _handed(self, timeout: float) -> "asyncpg.Connection | None":
        """What somebody gives back; None: leave to open one, which counts as open already."""
        waiter: asyncio.Future[asyncpg.Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        self._queue.set(len(self._waiting))

        def expire() -> None:
            if not waiter.done():
                text = f"no connection to the database of QueryFlux was free within {timeout:g} s"
                waiter.set_exception(NoneFree(text, hint=f"the {self.name} pool has {self.size}"))

        timer = None if timeout == float("inf") else self._clock.call_later(timeout, expire)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._return(waiter.result())
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(waiter, None)
            self._queue.set(len(self._waiting))

    def _return(self, handed: "asyncpg.Connection | None") -> None:
        """What was handed to somebody who does not want it any more."""
        if handed is None:
            self._count(-1)
        self._pass_on(handed)

    def _pass_on(self, connection: "asyncpg.Connection | None") -> None:
        """To the first who waits: a connection, or leave to open one in the place of one that has gone."""
        while self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if not waiter.done():
                if connection is None:
                    self._count(1)
                waiter.set_result(connection)
                return
        if connection is not None:
            self._idle.append((connection, self._clock.monotonic()))
            if self._tidy is None:
                self._tidy = self._clock.call_later(IDLE_SECS, self._close_unneeded)

    def _close_unneeded(self) -> None:
        """Those that nobody has needed for IDLE_SECS; the others are looked at again when they are due."""
        self._tidy = None
        now = self._clock.monotonic()
        while self._idle and now - self._idle[0][1] >= IDLE_SECS:
            self._tasks.spawn("close", self._close(self._idle.popleft()[0]))
        if self._idle:
            due = max(1.0, self._idle[0][1] + IDLE_SECS - now)
            self._tidy = self._clock.call_later(due, self._close_unneeded)

    async def _opened(self, timeout: float) -> "asyncpg.Connection":
        """A new connection, counted already."""
        try:
            connection = await self._connect(min(max(timeout, 0.001), CONNECT_SECS))
        except BaseException as error:
            self._count(-1)
            self._pass_on(None)
            fault = fault_of(error, None)
            if fault is None:
                raise
            self._tell(unavailable(fault, error))
            raise unavailable(fault, error) from error
        self._reached = True
        if self._failing:
            self._failing = False
            log.info("the %s pool reaches its database again", self.name)
        if self._closed:
            connection.terminate()
            self._count(-1)
            raise unavailable(CLOSED)
        return self._taken(connection)

    def _tell(self, error: StoreUnavailable) -> None:
        """Log the first of several failures."""
        if not self._failing:
            self._failing = True
            first = self.name == "admin" and not self._reached  # a start ends with it, and says why
            level = logging.DEBUG if first else logging.WARNING
            log.log(level, "the %s pool cannot connect: %s (%s)", self.name, error.message, error.hint)

    def _drop_idle(self) -> None:
        """At once: to take leave of a server that is silent takes long, and the places are needed."""
        while self._idle:
            self._idle.popleft()[0].terminate()
            self._count(-1)
            self._pass_on(None)

    async def _close(self, connection: "asyncpg.Connection") -> None:
        """Close one that nobody uses; a statement that still runs on it is cancelled first."""
        try:
            await close_connection(connection)
        finally:
            self._count(-1)
            self._pass_on(None)


class Borrowed:
    """One use of a connection."""

    __slots__ = ("_connection", "_limit", "_pool", "_watch", "_within")

    def __init__(self, pool: Pool, watch: Watch | None, within: float | None) -> None:
        self._pool = pool
        self._watch = watch
        self._within = within
        self._limit: asyncio.Timeout | None = None
        self._connection: asyncpg.Connection | None = None

    async def __aenter__(self) -> "asyncpg.Connection":
        due = asyncio.get_running_loop().time() + self._within if self._within is not None else None
        connection = self._connection = await self._pool.take(self._within)
        if due is not None:
            self._limit = asyncio.timeout_at(due)
            await self._limit.__aenter__()
        if self._watch is not None:
            self._watch.begin(connection)
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if self._watch is not None:
            self._watch.end(connection)
        if self._limit is not None:
            try:
                await self._limit.__aexit__(kind, error, trace)
            except TimeoutError as late:
                error = late
        fault = fault_of(error, connection) if error is not None else None
        self._pool.give(connection, fault, error is not None and is_broken_off(error))
        if fault is not None:
            raise unavailable(fault, error) from error


class Pools:
    """The pools of one process."""

    def __init__(
        self,
        sizes: PoolSizes,
        connect: Callable[[str], Connect],
        timeout: float,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """``connect`` gives what opens a pool's connections, by the pool's name; ``timeout`` as of Pool."""

        def pool(name: str, size: int) -> Pool:
            return Pool(name, size, connect(name), timeout, clock, metrics)

        self.query = pool("query", sizes.query)
        self.coordination = pool("coordination", sizes.coordination)
        self.admin = pool("admin", sizes.admin)
        self._connect_listener = connect("listen")
        self._listeners: set[asyncpg.Connection] = set()
        self._closed = False

    @classmethod
    def open(
        cls,
        settings: PostgresPersistence,
        *,
        clock: Clock,
        metrics: Metrics,
        instance: str = "",
        coordination_secs: int = COORDINATION_SECS,
    ) -> "Pools":
        """Pools by the settings; nothing is connected yet. ``instance`` names this process to whoever looks
        at the database's sessions; ``coordination_secs`` is how long a statement about capacity may take.
        Raises ConfigError for sizes that cannot be."""

        def connect(pool: str) -> Connect:
            limit, grace, longest = settings.statement_timeout_secs, GRACE_SECS, CONNECT_SECS
            if pool == "coordination":
                limit = min(limit or coordination_secs, coordination_secs)
                grace, longest = COORDINATION_GRACE_SECS, COORDINATION_CONNECT_SECS
            arguments = connect_arguments(settings, f"queryflux {pool} {instance}".strip(), limit, grace)
            return lambda timeout: asyncpg.connect(**arguments, timeout=min(timeout, longest))

        timeout = settings.acquire_timeout_secs
        return cls(pool_sizes(settings), connect, timeout, clock=clock, metrics=metrics)

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator["asyncpg.Connection", None]:
        """A connection of its own, outside the pools. Raises StoreUnavailable as a pool's does."""
        if self._closed:
            raise unavailable(CLOSED)
        connection: asyncpg.Connection | None = None
        try:
            connection = await self._connect_listener(LISTEN_CONNECT_SECS)
            self._listeners.add(connection)
            yield connection
        except Exception as error:
            fault = fault_of(error, connection)
            if fault is None:
                raise
            if connection is not None:
                connection.terminate()  # there is nobody to take leave of
            raise unavailable(fault, error) from error
        finally:
            if connection is not None:
                self._listeners.discard(connection)
                await close_connection(connection)

    async def close(self) -> None:
        """Close every connection, also those in use, whose users get StoreUnavailable."""
        self._closed = True
        for listener in self._listeners:
            listener.terminate()
        await asyncio.gather(self.query.close(), self.coordination.close(), self.admin.close())


async def close_connection(connection: "asyncpg.Connection") -> None:
    """Close one within CLOSE_SECS, one way or the other."""
    try:
        await connection.close(timeout=CLOSE_SECS)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        log.debug("a connection was cut, since it did not close: %s", error)
        connection.terminate()
    except BaseException:
        connection.terminate()
        raise


def connect_arguments(
    settings: PostgresPersistence, application: str, statement: int, grace: float
) -> dict[str, Any]:
    """What the driver needs to connect; the server ends a statement after ``statement`` seconds (0: never),
    and we ``grace`` later. TLS and further server settings come with the URL."""
    arguments: dict[str, Any] = {
        "connection_class": AttentiveConnection,
        "command_timeout": statement + grace if statement else None,
        "server_settings": {
            "application_name": application,
            "statement_timeout": f"{statement}s",
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECS}s",
            "default_transaction_isolation": "read committed",
        },
    }
    url = settings.url.reveal().strip() if settings.url else ""
    if url:
        return arguments | {"dsn": url}
    return arguments | {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password.reveal() if settings.password else "",
        "database": settings.database,
    }
