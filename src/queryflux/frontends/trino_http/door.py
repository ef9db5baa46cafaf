"""The Trino HTTP door: one listener, its connections, and a tick that ends what takes too long."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TypeVar

from queryflux.auth.port import Authenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.listener import Listener
from queryflux.frontends.trino_http.addresses import Addresses
from queryflux.frontends.trino_http.connection import Connection
from queryflux.frontends.trino_http.credentials import Credentials
from queryflux.frontends.trino_http.elsewhere import Elsewhere
from queryflux.frontends.trino_http.exchange import Surroundings
from queryflux.frontends.trino_http.handler import Handler
from queryflux.frontends.trino_http.registry import Registry
from queryflux.frontends.trino_http.replies import encode, refusal
from queryflux.model.errors import NotConfigured, TooManyConnections, Unavailable
from queryflux.model.ids import QueryIds
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.claims import Claims
from queryflux.pipeline.face import Pipeline
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.siblings import Siblings
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.threads import LaneThread
from queryflux.runtime.turns import Shared

T = TypeVar("T")

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
_LABEL = ClientProtocol.TRINO_HTTP.label


class TrinoDoor:
    """Serves Trino clients on one port."""

    def __init__(
        self,
        config: ListenerConfig,
        pipeline: Pipeline,
        auth: Callable[[], Authenticator],
        metrics: Metrics,
        clock: Clock,
        process_tag: str,
        tls_context: ssl.SSLContext | None = None,
        external_address: str | None = None,
        claims: Claims | None = None,
        *,
        shared: Shared | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        """``auth`` gives the authenticator of the configuration that is active; ``process_tag`` ends every
        id that clients hold; ``external_address`` is the base of the URIs they are given, if it is known;
        ``claims`` as for Handler; ``shared`` as for Listener; ``siblings`` are those that clients reach by
        the same port."""
        self.pipeline = pipeline
        self.clock = clock
        self.max_body_bytes = pipeline.max_statement_bytes
        self._auth_failures = metrics.counter("queryflux_auth_failures_total", protocol=_LABEL)
        self.tasks = TaskGroup("trino-http")
        self._registry = Registry(clock, self.tasks, process_tag)
        self._connections: set[Connection] = set()
        self._thread: LaneThread | None = None
        self._tick: Timer | None = None
        self._closed = False
        self.handler = Handler(
            pipeline,
            self._registry,
            Surroundings(clock, self.tasks, self.in_thread),
            Credentials(auth, clock),
            Addresses(external_address, tls=tls_context is not None, fallback=f"localhost:{config.port}"),
            QueryIds(process_tag, clock.now),
            self._state,
            claims,
        )
        if siblings is not None:
            self.handler.elsewhere = Elsewhere(siblings, self.handler, self.tasks)
            self._registry.siblings = True
        self._listener = Listener(
            _LABEL,
            config,
            self._serve,
            refuse=self._too_many,
            metrics=metrics,
            tls=tls_context,
            implicit_tls=True,
            shared=shared,
        )

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._listener.port

    @property
    def statements(self) -> int:
        """Statements whose URIs are good."""
        return len(self._registry)

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address cannot be had."""
        await self._listener.start()
        self._tick = self.clock.call_later(TICK_SECONDS, self._on_tick)

    def stop_accepting(self) -> None:
        """Take no further connections. Those that are open may fetch the rest of their results; what they
        submit is refused by the pipeline."""
        self._listener.stop_accepting()

    async def cancel_elsewhere(self, query_id: str) -> bool:
        """End a statement that another process began, by our id or its engine's. False: nobody knows it."""
        replicas = self.handler.replicas
        return replicas is not None and await replicas.cancel(query_id)

    async def close(self, grace: float = 0) -> None:
        """Let clients fetch what is ready, at most for ``grace`` seconds; then end everything: statements
        first, then connections. No task or thread is left."""
        try:
            async with asyncio.timeout(grace):
                await self._registry.wait_until_fetched()
        except TimeoutError:
            log.debug("TrinoHttp: %d statements are left", len(self._registry.live))
        self._closed = True
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        await self._registry.close()
        for connection in list(self._connections):
            connection.part()
        await self._listener.close(grace)
        if self.handler.replicas is not None:
            self.handler.replicas.close()
        await self.tasks.close()
        if self._thread is not None:
            await self._thread.join()
            self._thread = None

    async def in_thread(self, function: Callable[..., T], *args: object) -> T:
        """Run a function that takes long but needs little of the interpreter in this door's thread."""
        if self._thread is None:
            self._thread = LaneThread("trino-http")
        return await self._thread.run(function, *args)

    def count_auth_failure(self) -> None:
        """A client was refused for its credentials."""
        self._auth_failures.inc()

    def _state(self) -> str:
        try:
            self.pipeline.check_ready()
        except NotConfigured:
            return "STARTING"
        except Unavailable:
            return "SHUTTING_DOWN"
        return "ACTIVE"

    async def _serve(self, stream: ByteStream) -> None:
        connection = Connection(self, stream)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    async def _too_many(self, stream: ByteStream) -> None:
        await stream.read()
        error = TooManyConnections("this listener has reached maxConnections", hint="retry in a moment")
        stream.write(encode(refusal(error), keep_alive=False))
        await stream.drain()

    def _on_tick(self) -> None:
        if self._closed:
            return
        self._tick = self.clock.call_later(TICK_SECONDS, self._on_tick)
        now = self.clock.monotonic()
        for connection in list(self._connections):
            if connection.deadline <= now:
                connection.expire()
        self._registry.sweep()
