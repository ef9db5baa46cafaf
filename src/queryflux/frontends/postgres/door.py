"""The PostgreSQL door: its listener, its cancel keys, and a session for each client."""

import asyncio
import logging
import ssl
from collections.abc import Callable

from queryflux.auth.port import Authenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.listener import HANDSHAKE_SECONDS, Listener
from queryflux.frontends.postgres.client import Client, session_of
from queryflux.frontends.postgres.greeting import Greeted, Greeting
from queryflux.frontends.postgres.keys import CancelKeys, Issued, is_from
from queryflux.frontends.postgres.outbox import STALL_SECONDS, Outbox
from queryflux.frontends.postgres.session import PostgresSession
from queryflux.model.errors import AuthenticationFailed, QueryFluxError, TooManyConnections
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.face import Pipeline
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.siblings import Question, SiblingFailed, SiblingGone, Siblings
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.turns import Shared
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.errors import PostgresError, error_response
from queryflux.wire.postgres.startup import CancelRequest

log = logging.getLogger(__name__)

_CANCEL = "postgres cancel"


class PostgresDoor:
    """Serves PostgreSQL clients on one port. ``auth`` gives the authenticator of the active configuration."""

    def __init__(
        self,
        config: ListenerConfig,
        pipeline: Pipeline,
        auth: Callable[[], Authenticator],
        metrics: Metrics,
        process_tag: str,
        tls_context: ssl.SSLContext | None = None,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        shared: Shared | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        """``stall_seconds``: how long a client may take nothing of its answer. ``shared`` as for Listener;
        ``siblings`` are those that clients reach by the same port."""
        self._pipeline = pipeline
        self._auth = auth
        self._tls = tls_context
        self._stall_seconds = stall_seconds
        self._keys = CancelKeys(process_tag)
        self._sessions: set[PostgresSession] = set()
        self._tasks = TaskGroup("postgres door")
        self._limit = config.max_connections
        label = ClientProtocol.POSTGRES_WIRE.label
        self._auth_failures = metrics.counter("queryflux_auth_failures_total", protocol=label)
        self._listener = Listener(
            label,
            config,
            self._handle,
            refuse=self._refuse,
            metrics=metrics,
            tls=tls_context,
            handshake_seconds=handshake_seconds,
            shared=shared,
        )
        self._siblings = siblings
        if siblings is not None:
            siblings.answers(_CANCEL, self._cancel_for_sibling)

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError."""
        await self._listener.start()

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._listener.port

    @property
    def connections(self) -> int:
        """Connections that are served now."""
        return self._listener.connections

    def stop_accepting(self) -> None:
        """Take no further connections, and end those that have nothing under way."""
        self._listener.stop_accepting()
        for session in list(self._sessions):
            session.stop()

    async def close(self, grace: float = 0) -> None:
        """Stop accepting; sessions end once what they run is done, and are cut after ``grace`` seconds."""
        self.stop_accepting()
        await self._listener.close(grace)
        await self._tasks.close()

    async def _handle(self, stream: ByteStream) -> None:
        greeted = await self._greet(stream, full=False)
        if greeted is not None:
            await self._serve(stream, greeted)

    async def _refuse(self, stream: ByteStream) -> None:
        await self._greet(stream, full=True)

    async def _greet(self, stream: ByteStream, *, full: bool) -> Greeted | None:
        """Start-up, within the hand-shake's time. None when there is no session to come of it."""
        try:
            async with self._listener.handshake():
                return await self._start(stream, full=full)
        except TimeoutError:
            error = PostgresError("canceling authentication due to timeout", "57014")
            stream.write(error_response(error, fatal=True))
        except AuthenticationFailed as error:
            self._auth_failures.inc()
            log.info("a PostgreSQL client from %s was refused: %s", stream.peer, error.message)
            stream.write(error_response(error, fatal=True))
        except QueryFluxError as error:
            stream.write(error_response(error, fatal=True))
        return None

    async def _start(self, stream: ByteStream, *, full: bool) -> Greeted | None:
        decoder = messages.Decoder(self._pipeline.max_statement_bytes)
        greeting = Greeting(stream, decoder, self._tls)
        opening = await greeting.opening()
        if opening is None:
            return None
        if isinstance(opening, CancelRequest):
            await self._cancel(opening)
            return None
        if full:
            raise TooManyConnections(
                f"sorry, too many clients already: maxConnections is {self._limit}",
                hint="close a connection, or ask the operator to raise maxConnections",
            )
        self._pipeline.check_ready()
        return await greeting.authenticate(opening, self._auth())

    async def _cancel(self, request: CancelRequest) -> None:
        # The client waits for the connection to close: what it runs next is safe from this cancel.
        if not await self._cancel_here(request.process, request.key):
            await self._cancel_there(request)

    async def _cancel_here(self, process: int, key: bytes) -> bool:
        conversation = self._keys.find(process, key)
        if conversation is not None:
            await conversation.cancel()
        return conversation is not None

    async def _cancel_there(self, request: CancelRequest) -> None:
        """By the sibling that the number names."""
        siblings = self._siblings
        about = {"process": request.process, "key": request.key}
        for tag in siblings.others() if siblings is not None else ():
            if siblings is not None and is_from(tag, request.process):
                try:
                    told, _ = await siblings.ask(tag, _CANCEL, about)
                except SiblingGone:
                    continue
                except SiblingFailed as error:
                    log.warning("a cancel request did not reach the process it is for: %s", error)
                    return
                if told["known"]:
                    return
        log.info("a cancel request with an unknown key was ignored")

    async def _cancel_for_sibling(self, question: Question) -> None:
        about = question.about
        await question.head({"known": await self._cancel_here(about["process"], about["key"])})

    async def _serve(self, stream: ByteStream, greeted: Greeted) -> None:
        session_info = session_of(greeted.database, greeted.settings.given(), stream.peer)
        conversation = self._pipeline.converse(greeted.identity, session_info)
        issued = self._keys.issue(conversation, greeted.version)
        outbox = Outbox(stream, self._stall_seconds)
        client = Client(
            stream, outbox, greeted.decoder, self._pipeline, conversation, greeted.settings, self._tasks
        )
        client.number = issued.process
        session = PostgresSession(client, self._tasks)
        self._sessions.add(session)
        try:
            self._welcome(client, greeted, issued)
            await session.run()
        except asyncio.CancelledError:
            stream.write(
                error_response(
                    PostgresError("terminating connection due to administrator command", "57P01"), fatal=True
                )
            )
            raise
        finally:
            self._sessions.discard(session)
            self._keys.revoke(issued)

    def _welcome(self, client: Client, greeted: Greeted, issued: Issued) -> None:
        outbox = client.outbox
        outbox.add(greeted.last)
        for name, value in greeted.settings.all_reported():
            outbox.add(messages.parameter_status(name, value))
        outbox.add(messages.backend_key_data(issued.process, issued.key))
        client.ready()
