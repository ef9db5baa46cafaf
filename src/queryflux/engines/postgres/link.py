"""One connection of ours to a PostgreSQL server: opened, used by one client at a time, cancelled, reset."""

import asyncio
import logging
import select
import ssl
from collections import OrderedDict
from dataclasses import dataclass, field

from queryflux.engines.postgres.errors import engine_error
from queryflux.engines.postgres.settings import Settings, change, codec_of, encoded
from queryflux.engines.postgres.target import APPLICATION_NAME, Target
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    EngineUnavailable,
    NotSupported,
    ProtocolViolation,
    QueryFluxError,
)
from queryflux.runtime.bytestream import ByteStream, connect
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres.constants import Back
from queryflux.wire.postgres.startup_client import MAX_STARTUP_MESSAGE, Startup, StartupState

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0
RESET_TIMEOUT = 5.0
MAX_STATEMENTS = 256
"""Prepared statements kept on one server connection."""
MAX_NAMED_TEXT = 16 * 1024
"""Longer texts, in bytes, are prepared anew each time, so that a connection's memory stays bounded."""
READ_EVENTS = select.POLLIN | select.POLLHUP | select.POLLERR

StatementKey = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class Reply:
    """What a statement of our own gave: text values, in memory."""

    columns: list[wire.Column] = field(default_factory=list)
    rows: list[list[bytes | None]] = field(default_factory=list)
    tag: str = ""
    count: int | None = None


class ServerLink:
    """A connection that has started up. ``settings`` are those replayed on it, None when unknown;
    ``status`` is the last ReadyForQuery's; ``unsynced`` while a batch has no Sync yet; ``gone`` once the
    server has closed it."""

    __slots__ = (
        "_cancels",
        "_names",
        "_poll",
        "broken",
        "gone",
        "idle_since",
        "key",
        "messages",
        "pid",
        "pinned",
        "settings",
        "shapes",
        "statements",
        "status",
        "stream",
        "target",
        "unsynced",
    )

    def __init__(self, target: Target, stream: ByteStream, startup: Startup) -> None:
        self.target = target
        self.stream = stream
        self.messages = wire.ServerMessages()
        self.pid = startup.pid
        self.key = startup.key
        self.settings: Settings | None = ()
        self.status = b"I"
        self.pinned = False
        self.unsynced = False
        self.broken = False
        self.gone = False
        self.idle_since = 0.0
        self.statements: OrderedDict[StatementKey, bytes] = OrderedDict()
        self.shapes: dict[bytes, bytes] = {}
        """By name: the RowDescription or NoData of what was described. The server keeps to it."""
        self._names = 0
        self._cancels = 0
        self._poll = select.poll()
        self._poll.register(stream.fileno, READ_EVENTS)
        stream.on_gone(self._closed_by_server)

    # Bytes.

    async def chunk(self) -> bytes:
        """Wait for bytes. Raises EngineConnectionLost."""
        try:
            chunk = await self.stream.read()
        except OSError as error:
            raise self.lost(str(error)) from error
        if not chunk:
            raise self.lost("the server closed the connection")
        return chunk

    async def read(self) -> None:
        """Wait for bytes and hand them to ``messages``. Raises EngineConnectionLost."""
        self.messages.feed(await self.chunk())

    def _closed_by_server(self) -> None:
        self.gone = True

    def lost(self, reason: str) -> EngineConnectionLost:
        """The error for a connection that broke under a statement; marks it."""
        self.broken = True
        return EngineConnectionLost(
            f"The connection to PostgreSQL at {self.target.where} was lost: {reason}",
            hint="The statement may have run. Look before you run it again.",
        )

    def garbage(self, error: ProtocolViolation) -> EngineConnectionLost:
        """The error for a server that talks nonsense; marks the connection."""
        return self.lost(error.message)

    @property
    def cancelling(self) -> bool:
        """A CancelRequest is on its way: it must arrive before the connection serves anybody else."""
        return self._cancels > 0

    @property
    def usable(self) -> bool:
        """Nothing speaks against giving it to the next client."""
        return not (
            self.broken
            or self.pinned
            or self.unsynced
            or self.status != b"I"
            or self._cancels
            or self.gone
            or not self.messages.empty
        )

    def disturbed(self) -> bool:
        """Whether anything arrived while it lay idle: the server's goodbye, as a rule."""
        return self.gone or self.stream.buffered > 0 or bool(self._poll.poll(0))

    def abort(self) -> None:
        """Drop it at once."""
        self.broken = True
        self.stream.abort()

    def close(self) -> None:
        """Say goodbye and close."""
        self.broken = True
        self.stream.write(wire.TERMINATE)
        self.stream.close()

    # Prepared statements.

    def prepared(self, key: StatementKey) -> bytes:
        """The server's name for a statement that it has; empty when it has not."""
        name = self.statements.get(key)
        if name is None:
            return b""
        self.statements.move_to_end(key)
        return name

    def prepare(self, key: StatementKey, sql: bytes, *, named: bool) -> tuple[bytes, bytes]:
        """A name for a statement that the server has not, and what must be sent before it is used."""
        if not named or len(sql) > MAX_NAMED_TEXT:
            return b"", wire.parse(b"", sql, key[1])
        before = b""
        if len(self.statements) >= MAX_STATEMENTS:
            _, oldest = self.statements.popitem(last=False)
            self.shapes.pop(oldest, None)
            before = wire.close_statement(oldest)
        self._names += 1
        name = self.statements[key] = b"qf%d" % self._names
        return name, before + wire.parse(name, sql, key[1])

    def forget(self, key: StatementKey) -> None:
        """The server does not have it any more, or not as it was."""
        self.shapes.pop(self.statements.pop(key, b""), None)

    def forget_all(self) -> None:
        """The server has dropped every prepared statement."""
        self.statements.clear()
        self.shapes.clear()

    def next_portal(self) -> bytes:
        """A portal name that this connection has not used yet."""
        self._names += 1
        return b"qf%d" % self._names

    # Statements of our own.

    async def simple(self, sql: str) -> Reply:
        """Run one statement of ours and return all it gives, as text.

        Raises EngineError, EngineConnectionLost, NotSupported (COPY).
        """
        self.stream.write(wire.query(encoded(sql, codec_of(self.settings or ()))))
        return await self.reply()

    async def reply(self) -> Reply:
        """Read up to ReadyForQuery. Raises as ``simple``."""
        reply = Reply()
        failure: QueryFluxError | None = None
        while True:
            try:
                kind = self.messages.next()
                if not kind:
                    await self.read()
                    continue
                if kind == Back.DATA_ROW:
                    reply.rows.append(wire.parse_data_row(self.messages.body))
                elif kind == Back.ROW_DESCRIPTION:
                    reply.columns = wire.parse_row_description(self.messages.body)
                elif kind == Back.COMMAND_COMPLETE:
                    reply.tag, reply.count = wire.parse_command_tag(self.messages.body)
                elif kind == Back.ERROR:
                    failure = failure or engine_error(wire.parse_error(self.messages.body))
                    self.broken = self.broken or isinstance(failure, EngineConnectionLost)
                elif kind == Back.READY_FOR_QUERY:
                    self.status = self.messages.body
                    break
                elif kind == Back.COPY_IN_RESPONSE:
                    failure = NotSupported("COPY FROM STDIN is for PostgreSQL clients")
                    self.stream.write(wire.copy_fail("not supported here"))
            except ProtocolViolation as error:
                raise self.garbage(error) from error
            if self.broken and failure is not None:
                raise failure
        if failure is not None:
            raise failure
        return reply

    async def sync(self) -> None:
        """End a batch. Raises what its commit raises."""
        self.unsynced = False
        self.stream.write(wire.SYNC)
        await self.reply()

    async def apply(self, wanted: Settings) -> None:
        """Make the replayed settings equal to ``wanted``. Raises EngineError when the server refuses one."""
        before = self.settings
        statements = change(before, wanted)
        self.settings = None
        try:
            if statements:
                await self.simple("; ".join(statements))
        except EngineError:
            self.settings = before
            raise
        self.settings = wanted

    async def reset(self) -> None:
        """Make it as good as new after a client that pinned it. Raises what the server says."""
        if self.unsynced:
            await self.sync()
        if self.status != b"I":
            await self.simple("ROLLBACK")
        if self.pinned:
            self.forget_all()
            await self.simple("DISCARD ALL")
            self.settings = ()
            self.pinned = False

    # Cancelling.

    async def request_cancel(self) -> None:
        """Send a CancelRequest for this connection; returns when the server has acted on it.

        Until then ``usable`` is false, so that it can hit no later statement. Failures are logged.
        """
        self._cancels += 1
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                stream = await _connect(self.target)
                try:
                    stream.write(wire.cancel_request(self.pid, self.key))
                    while await stream.read():
                        pass
                finally:
                    stream.abort()
        except (OSError, EngineUnavailable) as error:
            log.warning("could not cancel at PostgreSQL %s: %s", self.target.where, error)
        finally:
            self._cancels -= 1


async def _connect(target: Target) -> ByteStream:
    """A connection before its start-up packet, under TLS if the cluster says so."""
    try:
        context = target.context()
    except (OSError, ssl.SSLError) as error:
        raise EngineUnavailable(f"The CA file of cluster {target.cluster} cannot be used: {error}") from error
    stream = await connect(target.host, target.port, timeout=CONNECT_TIMEOUT)
    if context is None:
        return stream
    try:
        stream.write(wire.SSL_REQUEST_MESSAGE)
        answer = await stream.read()
        if answer != b"S":
            raise EngineUnavailable(
                f"PostgreSQL at {target.where} refuses TLS",
                hint="Turn ssl on at the server, or remove tls from the cluster.",
            )
        await stream.start_tls(
            context, server_side=False, server_hostname=target.server_name, timeout=CONNECT_TIMEOUT
        )
    except BaseException:
        stream.abort()
        raise
    return stream


async def open_link(target: Target) -> ServerLink:
    """Connect and start up. Raises EngineUnavailable with the reason."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT * 2):
            stream = await _connect(target)
            try:
                return await _start(target, stream)
            except BaseException:
                stream.abort()
                raise
    except (OSError, EngineConnectionLost) as error:
        reason = str(error) or type(error).__name__
        raise EngineUnavailable(
            f"PostgreSQL at {target.where} cannot be reached: {reason}",
            hint="Check that the server runs and that the cluster's endpoint and tls are right.",
        ) from error


async def _start(target: Target, stream: ByteStream) -> ServerLink:
    startup = Startup(target.user, target.password, stream.encrypted, target.keys)
    messages = wire.ServerMessages(MAX_STARTUP_MESSAGE)
    stream.write(
        wire.startup(
            (
                ("user", target.user),
                ("database", target.database),
                ("client_encoding", "UTF8"),
                ("application_name", APPLICATION_NAME),
            )
        )
    )
    while startup.state is not StartupState.READY:
        try:
            kind = messages.next()
            if kind:
                reply = startup.receive(kind, messages.body)
                if reply:
                    stream.write(reply)
        except QueryFluxError as error:
            raise EngineUnavailable(
                f"PostgreSQL at {target.where}: {error.message}", hint=error.hint
            ) from error
        if startup.failure is not None:
            raise EngineUnavailable(
                f"PostgreSQL at {target.where} refused the connection: {startup.failure.message}"
                f" (SQLSTATE {startup.failure.sqlstate})",
                hint="Check the cluster's credentials and database, and the server's limits.",
            )
        if not kind:
            chunk = await stream.read()
            if not chunk:
                raise EngineUnavailable(f"PostgreSQL at {target.where} closed the connection at start-up")
            messages.feed(chunk)
    return ServerLink(target, stream, startup)
