"""One client's connection: login, then commands until it ends.

Order and legality are the lifecycle's (wire/mysql/state.py). A command is answered completely before the next
is read; while a query runs nothing is read, so that pipelined commands wait, and only the client's going
away cancels it.
"""

import logging
from typing import TYPE_CHECKING, Never

from queryflux.frontends.mysql.answers import Process
from queryflux.frontends.mysql.commands import CommandRunner
from queryflux.frontends.mysql.exchange import Exchange
from queryflux.frontends.mysql.login import prove
from queryflux.frontends.mysql.session import ClientSession
from queryflux.frontends.mysql.variables import SessionVariables
from queryflux.model.errors import (
    AuthenticationFailed,
    InternalError,
    PlaintextCredentialsRefused,
    ProtocolViolation,
    QueryFluxError,
    StatementTooLarge,
    Unavailable,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.pipeline.face import TransactionStatus
from queryflux.runtime.bytestream import ByteStream
from queryflux.wire.mysql import handshake, replies
from queryflux.wire.mysql.commands import command_of
from queryflux.wire.mysql.constants import Capability, Command, ServerStatus
from queryflux.wire.mysql.errors import ACCESS_DENIED, OUT_OF_ORDER, ServerError
from queryflux.wire.mysql.handshake import CLEAR_PASSWORD, Login, SslRequest
from queryflux.wire.mysql.state import Event, Lifecycle, Phase

if TYPE_CHECKING:
    from queryflux.frontends.mysql.door import MysqlDoor

log = logging.getLogger(__name__)

_SHOWN_TEXT = 1024
_COMMAND_BYTE = 1
_READ_TIMEOUT = 1159


class Connection:
    """A connection from its greeting to its end. ``number`` is what KILL calls it by."""

    def __init__(self, door: "MysqlDoor", stream: ByteStream, number: int) -> None:
        self.number = number
        self.lifecycle = Lifecycle()
        self.runner: CommandRunner | None = None
        self._door = door
        self._stream = stream
        self._peer = stream.peer
        self._variables = SessionVariables(**door.server_variables)
        self.exchange = Exchange(stream, door.clock, self._variables)
        self._capabilities = Capability(0)
        self._killed = False
        self._since = door.clock.monotonic()

    async def run(self) -> None:
        """Serve the client until it ends. Raises what the listener logs: ConnectionError, TimeoutError,
        QueryFluxError for a client that was refused."""
        try:
            async with self._door.listener.handshake():
                await self._log_in()
            self.exchange.codec.limit = self._door.pipeline.max_statement_bytes + _COMMAND_BYTE
            await self._serve()
        except TimeoutError:
            await self._refuse(ServerError(_READ_TIMEOUT, "Got timeout reading communication packets"))
        finally:
            self.lifecycle.advance(Event.CLOSE)
            if self.runner is not None:
                await self.runner.close()

    # Login.

    async def _log_in(self) -> None:
        try:
            self._door.pipeline.check_ready()
        except Unavailable as error:
            await self._refuse(error)
        nonce = handshake.new_nonce()
        offered = self._door.tls is not None
        greeting = handshake.greeting(self.number, nonce, tls=offered)
        try:
            payload = await self.exchange.ask(greeting)
            response = handshake.read_response(payload, tls=offered)
            if isinstance(response, SslRequest):
                response = await self._secure()
        except (ProtocolViolation, StatementTooLarge) as error:
            await self._refuse(error)
        self._capabilities = response.capabilities
        self.lifecycle.advance(Event.RESPONSE)
        await self._prove(response, nonce)

    async def _secure(self) -> Login:
        """The client asked for TLS; its handshake may have come along with that."""
        assert self._door.tls is not None
        self.lifecycle.advance(Event.SSL_REQUEST)
        early = self.exchange.codec.take_rest()
        await self._stream.start_tls(self._door.tls, server_side=True, received=early)
        self.lifecycle.advance(Event.SECURED)
        response = handshake.read_response(await self.exchange.receive(), tls=False)
        assert isinstance(response, Login)
        return response

    async def _prove(self, login: Login, nonce: bytes) -> None:
        door = self._door
        try:
            auth = door.auth()
            identity = await prove(self.exchange, login, nonce, auth, door.key)
        except AuthenticationFailed as error:
            door.auth_failures.inc()
            await self._refuse(self._denied(login, error))
        except (ProtocolViolation, StatementTooLarge, Unavailable) as error:
            await self._refuse(error)
        self.lifecycle.advance(Event.PROVED)
        self._begin(identity, login)
        self.exchange.add(replies.ok(ServerStatus.AUTOCOMMIT))
        await self.exchange.flush()

    def _denied(self, login: Login, error: AuthenticationFailed) -> ServerError:
        host = self._peer.rpartition(":")[0] or "localhost"
        used = "YES" if login.proof not in (b"", b"\0") else "NO"
        return ServerError(
            ACCESS_DENIED,
            f"Access denied for user '{login.user}'@'{host}' (using password: {used}): {error.message}",
            hint=self._encrypted_how(login, error),
        )

    def _encrypted_how(self, login: Login, error: AuthenticationFailed) -> str:
        """The error's hint. MariaDB's own programs send the password in clear when they were let have TLS
        and the door has none; told to do without, they encrypt it with the door's key."""
        if not isinstance(error, PlaintextCredentialsRefused):
            return error.hint
        if self._door.tls is not None:
            return "connect with TLS"
        if login.plugin == CLEAR_PASSWORD:
            return error.hint
        return f"MariaDB's mysql encrypts it when it is called with --skip-ssl; {error.hint}"

    def _begin(self, identity: VerifiedIdentity, login: Login) -> None:
        self._variables.clear()
        session = ClientSession(
            self.number, identity, login.database, self._peer, login.attributes, self._variables
        )
        conversation = self._door.pipeline.converse(identity, session.surroundings())
        self.runner = CommandRunner(self._door, self.exchange, session, conversation, self._capabilities)

    async def _refuse(self, error: QueryFluxError) -> Never:
        """Say what is wrong, and end."""
        self.exchange.add_error(error, with_state=self.lifecycle.phase is not Phase.GREETING)
        await self.exchange.flush()
        raise error

    async def _change_user(self, payload: bytes) -> None:
        assert self.runner is not None
        login = handshake.read_change_user(payload, self._capabilities)
        self.lifecycle.advance(Event.CHANGE_USER)
        runner, self.runner = self.runner, None
        await runner.close()
        async with self._door.listener.handshake():
            await self._prove(login, b"")

    # Commands.

    async def _serve(self) -> None:
        codec = self.exchange.codec
        while not (self._killed or self._is_drained()):
            codec.sequence = 0
            self._since = self._door.clock.monotonic()
            try:
                payload = await self.exchange.receive()
            except StatementTooLarge as error:
                self.exchange.add_error(error)
                await self.exchange.flush()
                continue
            except ProtocolViolation as error:
                await self._refuse(ServerError(OUT_OF_ORDER, error.message, hint=error.hint))
            if not await self._command(payload):
                return

    async def _command(self, payload: bytes) -> bool:
        """Answer one command; False when the client quits."""
        self.lifecycle.advance(Event.COMMAND)
        self._since = self._door.clock.monotonic()
        runner = self.runner
        assert runner is not None
        try:
            command = command_of(payload)
            if command == Command.QUIT:
                return False
            if command == Command.CHANGE_USER:
                await self._change_user(payload)
                return True
            await runner.run(command, payload)
        except QueryFluxError as error:
            if self.lifecycle.phase is not Phase.RUNNING:
                raise
            runner.failed(error)
        except (ConnectionError, TimeoutError):
            raise
        except Exception:
            log.exception("a command of connection %d failed", self.number)
            runner.failed(InternalError("the server failed while it answered", hint="see its log"))
        await self.exchange.flush()
        self.lifecycle.advance(Event.ANSWERED)
        return True

    def _is_drained(self) -> bool:
        """The door is closing and this client holds no transaction open."""
        if not self._door.draining or self.runner is None:
            return False
        return self.runner.conversation.transaction is TransactionStatus.IDLE

    # What others ask of it.

    def drain(self) -> None:
        """Close it if it is idle; a command that runs is answered first."""
        if self.lifecycle.phase is Phase.READY and not self.exchange.codec.pending and self._is_drained():
            self._stream.close()

    def kill(self, *, query_only: bool) -> None:
        """Cancel its query; and unless ``query_only``, close it then."""
        if self.runner is None:
            self._stream.abort()
            return
        self.runner.statements.stop()
        if not query_only:
            self._killed = True
            if self.lifecycle.phase is Phase.READY:
                self._stream.close()

    @property
    def user(self) -> str:
        """The user's name; empty before login."""
        return self.runner.session.identity.user if self.runner is not None else ""

    def process(self) -> Process:
        """Its line in SHOW PROCESSLIST."""
        runner = self.runner
        text = runner.statements.text if runner is not None else ""
        return Process(
            self.number,
            self.user or "unauthenticated user",
            self._peer,
            runner.session.database if runner is not None else "",
            "Query" if text else "Sleep",
            int(self._door.clock.monotonic() - self._since),
            text[:_SHOWN_TEXT],
        )
