"""The listener of the MySQL protocol, and what its connections share."""

import logging
import ssl
from collections.abc import Callable

from queryflux.auth.port import Authenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.listener import Listener
from queryflux.frontends.mysql.answers import Process
from queryflux.frontends.mysql.connection import Connection
from queryflux.frontends.mysql.encoding import EncodingThreads
from queryflux.frontends.mysql.keys import PasswordKey
from queryflux.frontends.mysql.neighbours import Neighbours
from queryflux.frontends.mysql.numbers import ConnectionIds
from queryflux.frontends.mysql.session import ClientSession
from queryflux.model.errors import TooManyConnections
from queryflux.model.protocol import ClientProtocol
from queryflux.model.settings import Value
from queryflux.pipeline.face import Pipeline
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.clock import Clock, SystemClock, Timer
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.siblings import Siblings
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.turns import Shared
from queryflux.wire.mysql import replies
from queryflux.wire.mysql.errors import NOT_OWNER, UNKNOWN_THREAD, ServerError, to_mysql
from queryflux.wire.mysql.packets import PacketCodec

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0


class MysqlDoor:
    """Accepts MySQL clients. ``start``, then ``stop_accepting`` when draining, then ``close``."""

    def __init__(
        self,
        config: ListenerConfig,
        pipeline: Pipeline,
        auth: Callable[[], Authenticator],
        metrics: Metrics,
        process_tag: str,
        tls_context: ssl.SSLContext | None = None,
        *,
        clock: Clock | None = None,
        shared: Shared | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        """``auth`` gives the authenticator of the configuration that is active now; ``shared`` as for
        Listener; ``siblings`` are those that clients reach by the same port."""
        label = ClientProtocol.MYSQL_WIRE.label
        self.pipeline = pipeline
        self.auth = auth
        self.tls = tls_context
        self.clock = clock or SystemClock()
        self.auth_failures = metrics.counter("queryflux_auth_failures_total", protocol=label)
        self.listener = Listener(
            label, config, self._serve, refuse=_turn_away, metrics=metrics, tls=tls_context, shared=shared
        )
        self._neighbours = Neighbours(self, siblings) if siblings is not None else None
        self.tasks = TaskGroup(label + "/cancels")
        self.threads = EncodingThreads()
        self.key = PasswordKey()
        self.draining = False
        self.server_variables: dict[str, Value] = {
            "have_ssl": "YES" if tls_context is not None else "DISABLED",
            "have_openssl": "YES" if tls_context is not None else "DISABLED",
            "max_allowed_packet": pipeline.max_statement_bytes,
            "max_connections": config.max_connections or 0,
        }
        self._connections: dict[int, Connection] = {}
        self._ids = ConnectionIds(process_tag)
        self._sweeping: Timer | None = None
        self._started = 0.0
        self._accepted = 0
        self.questions = 0

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self.listener.port

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address cannot be had."""
        await self.listener.start()
        self.server_variables["port"] = self.listener.port
        self._started = self.clock.monotonic()
        self._sweeping = self.clock.call_later(SWEEP_SECONDS, self._sweep)

    def stop_accepting(self) -> None:
        """Take no further connections; close those that are idle, the others after their statement."""
        self.draining = True
        self.listener.stop_accepting()
        for connection in list(self._connections.values()):
            connection.drain()

    async def close(self, grace: float = 0) -> None:
        """Drain for ``grace`` seconds, then cut what is left. No task, thread or socket is left after it."""
        self.stop_accepting()
        await self.listener.close(grace)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        await self.tasks.wait()
        await self.threads.close()

    async def _serve(self, stream: ByteStream) -> None:
        number = self._ids.next(self._connections.__contains__)
        connection = Connection(self, stream, number)
        self._connections[number] = connection
        self._accepted += 1
        try:
            await connection.run()
        finally:
            del self._connections[number]

    def _sweep(self) -> None:
        """Cut connections whose client is too slow; once a second for all of them."""
        now = self.clock.monotonic()
        for connection in list(self._connections.values()):
            exchange = connection.exchange
            if exchange.cut_if_late(now):
                log.info(
                    "connection %d was cut: waited too long for %s", connection.number, exchange.waiting_for
                )
        self._sweeping = self.clock.call_later(SWEEP_SECONDS, self._sweep)

    # What connections ask about each other.

    async def kill(self, number: int, user: str, *, query_only: bool) -> None:
        """Cancel another connection's query, or close it, also at a sibling. Raises ServerError 1094 when
        there is none of that number, 1095 when it is another user's."""
        if number in self._connections or self._neighbours is None:
            self.kill_here(number, user, query_only=query_only)
        else:
            await self._neighbours.kill(number, user, query_only=query_only)

    def kill_here(self, number: int, user: str, *, query_only: bool) -> None:
        """The same for a connection of this process. Raises as ``kill``."""
        connection = self._connections.get(number)
        if connection is None:
            raise ServerError(UNKNOWN_THREAD, f"Unknown thread id: {number}")
        if connection.user != user:
            raise ServerError(NOT_OWNER, f"You are not owner of thread {number}")
        connection.kill(query_only=query_only)

    async def processes(self, session: ClientSession) -> list[Process]:
        """The connections that a client may see: its user's own, at every sibling."""
        user = session.identity.user
        there = await self._neighbours.processes(user) if self._neighbours is not None else []
        return [*self.processes_here(user), *there]

    def processes_here(self, user: str) -> list[Process]:
        """Those of this process."""
        return [item.process() for item in self._connections.values() if item.user == user]

    def status(self) -> dict[str, str]:
        """What SHOW STATUS and COM_STATISTICS tell."""
        return {
            "Connections": str(self._accepted),
            "Questions": str(self.questions),
            "Threads_connected": str(len(self._connections)),
            "Uptime": str(int(self.clock.monotonic() - self._started)),
        }


async def _turn_away(stream: ByteStream) -> None:
    """Error 1040, before a greeting: without an SQLSTATE, which such a client cannot know yet."""
    error = to_mysql(
        TooManyConnections("Too many connections", hint="maxConnections of this listener is reached")
    )
    stream.write(PacketCodec(0).pack(replies.error(error.number, "", error.message)))
    await stream.drain()
