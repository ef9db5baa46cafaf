"""One authenticated client: what the simple and the extended protocol share.

Bytes go out through ``outbox``; an error becomes one ErrorResponse here and nowhere else.
"""

import asyncio
import logging
from collections.abc import Mapping

from queryflux.frontends.postgres.budget import Budget
from queryflux.frontends.postgres.commands import (
    Command,
    DeallocateCommand,
    DiscardCommand,
    NoCommand,
    NumberCommand,
    Reply,
    ResetCommand,
    SetCommand,
    ShowCommand,
    text_columns,
)
from queryflux.frontends.postgres.outbox import Outbox
from queryflux.frontends.postgres.prepared import Statements
from queryflux.frontends.postgres.settings import Settings
from queryflux.frontends.tags import parse_tags
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    InternalError,
    QueryFluxError,
    QueryTimedOut,
    StatementTooLarge,
    TransactionFailed,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import EMPTY, Session
from queryflux.pipeline.face import (
    Classification,
    Conversation,
    Pipeline,
    Query,
    StatementKind,
    TransactionStatus,
)
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.postgres import lifecycle, messages
from queryflux.wire.postgres.constants import Front
from queryflux.wire.postgres.errors import PostgresError, error_response, notice

log = logging.getLogger(__name__)

FAULTS = (QueryFluxError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, MemoryError)
"""What a client is told of, as an error of its statement."""
DIALECT = ClientProtocol.POSTGRES_WIRE.dialect
IDLE = messages.READY["I"]
STATUS = {
    TransactionStatus.IDLE: messages.READY["I"],
    TransactionStatus.OPEN: messages.READY["T"],
    TransactionStatus.FAILED: messages.READY["E"],
}


class Client:
    """``state`` is where the session stands (wire.postgres.lifecycle); ``query_id`` names the query an error
    belongs to."""

    def __init__(
        self,
        stream: ByteStream,
        outbox: Outbox,
        decoder: messages.Decoder,
        pipeline: Pipeline,
        conversation: Conversation,
        settings: Settings,
        tasks: TaskGroup,
    ) -> None:
        self._tasks = tasks
        self.stream = stream
        self.outbox = outbox
        self.decoder = decoder
        self.pipeline = pipeline
        self.conversation = conversation
        self.settings = settings
        self.state = lifecycle.Session.READY
        self.query_id = ""
        self.number = 0
        """The process number that the client was given with its key."""
        self._overdue = ""
        self.budget = Budget()
        self.prepared = Statements(self.budget)

    # Replies.

    def ready(self) -> None:
        """ReadyForQuery, after the settings that changed."""
        settings, transaction = self.settings, self.conversation.transaction
        if settings.in_transaction and transaction is TransactionStatus.IDLE:
            # It ended without COMMIT or ROLLBACK: its COMMIT failed, or the engine went away.
            settings.end(committed=False)
            self.renew_session()
        if settings.changed:
            for name, value in settings.reports():
                self.outbox.add(messages.parameter_status(name, value))
        self.outbox.add(IDLE if transaction is TransactionStatus.IDLE else STATUS[transaction])

    def report(self, error: Exception, offset: int = 0) -> None:
        """An ErrorResponse, and the state that follows it. ``offset``: see ``error_response``."""
        if isinstance(error, QueryTimedOut) and self.query_id and self._overdue == self.query_id:
            error = PostgresError("canceling statement due to statement timeout", "57014")
        self.outbox.add(error_response(as_ours(error), query_id=self.query_id, offset=offset))
        self.failed()

    def failed(self) -> None:
        """The server has told the client of an error: the state that follows it."""
        self.state = lifecycle.next_session(self.state, lifecycle.Event.FAILED)

    def warn(self, sqlstate: str, message: str) -> None:
        """A WARNING beside whatever is answered."""
        self.outbox.add(notice("WARNING", sqlstate, message))

    # What a statement is.

    def classify(self, text: str) -> Classification:
        """The kind of a statement."""
        return self.pipeline.classify(text, DIALECT)

    def native(self) -> bool:
        """Whether the next statement would most likely go to an engine that speaks PostgreSQL."""
        return self.conversation.speaks() is ClientProtocol.POSTGRES_WIRE

    def limit_time(self, query: Query) -> asyncio.TimerHandle | None:
        """Start the client's ``statement_timeout``; a server that speaks PostgreSQL keeps it itself."""
        seconds = self.settings.statement_timeout
        if not seconds or query.engine_protocol is ClientProtocol.POSTGRES_WIRE:
            return None

        def overdue() -> None:
            self._overdue = query.id
            self._tasks.spawn("statement_timeout", query.cancel(EndReason.TIMED_OUT))

        return asyncio.get_running_loop().call_later(seconds, overdue)

    # The session.

    def run_command(self, command: Command, classification: Classification) -> Reply:
        """Do what a statement about the session asks, and answer it. Raises PostgresError,
        TransactionFailed."""
        if self.conversation.transaction is TransactionStatus.FAILED:
            raise TransactionFailed(
                "current transaction is aborted, commands ignored until end of transaction block"
            )
        match command:
            case ShowCommand():
                return self._show(command.name)
            case DeallocateCommand():
                return self._deallocate(command.name)
            case NumberCommand():
                return Reply("SELECT 1", command.columns, ((self.number,),))
        self.apply(command)
        if isinstance(command, NoCommand) and command.tag:
            return Reply(command.tag)
        if isinstance(command, DiscardCommand):
            return Reply(f"DISCARD {command.what}")
        return Reply("RESET" if classification.kind is StatementKind.RESET else "SET")

    def apply(self, command: Command) -> None:
        """Keep what SET, RESET or DISCARD changes. Raises PostgresError."""
        match command:
            case SetCommand():
                self.settings.set(command.name, command.value, local=command.local)
            case ResetCommand(name=""):
                self.settings.reset_all()
            case ResetCommand():
                self.settings.set(command.name, None)
            case DiscardCommand(what="ALL"):
                if self.conversation.transaction is not TransactionStatus.IDLE:
                    raise PostgresError("DISCARD ALL cannot run inside a transaction block", "25001")
                self.settings.reset_all()
                self.prepared.clear()
            case DeallocateCommand(name=""):
                self.prepared.clear()
            case _:
                return
        self.renew_session()

    def follow(self, command: Command) -> None:
        """The same after a server has done it, and so has judged it already."""
        try:
            self.apply(command)
        except PostgresError as error:
            log.debug("a setting of the server is not one of ours: %s", error.message)

    def renew_session(self) -> None:
        """Tell the pipeline of the settings as they are now."""
        old = self.conversation.session
        self.conversation.session = session_of(old.catalog, self.settings.given(), old.peer)

    def _show(self, name: str) -> Reply:
        if not name:
            rows = tuple((shown, value, "") for shown, value in self.settings.every())
            return Reply("SHOW", text_columns("name", "setting", "description"), rows)
        value = self.settings.get(name)
        if value is None:
            raise PostgresError(f'unrecognized configuration parameter "{name}"', "42704")
        return Reply("SHOW", text_columns(self.settings.shown(name)), ((value,),))

    def _deallocate(self, name: str) -> Reply:
        if not name:
            self.prepared.clear()
            return Reply("DEALLOCATE ALL")
        self.prepared.named(name)
        self.prepared.discard(name)
        return Reply("DEALLOCATE")

    # COPY FROM STDIN.

    async def upload(self) -> bytes:
        """The client's next copy message, whole, for the engine that asked for it. A client that has gone is
        a CopyFail."""
        self.outbox.flush()
        if self.state in (lifecycle.Session.READY, lifecycle.Session.BATCH):
            self.state = lifecycle.next_session(self.state, lifecycle.Event.COPY_IN)
        while True:
            found = self.decoder.next()
            if found is None:
                data = await self.stream.read()
                if not data:
                    return messages.message(Front.COPY_FAIL, b"the client has gone\0")
                self.decoder.feed(data)
                continue
            kind, body = found
            state = lifecycle.next_session(self.state, kind)
            if kind in (Front.FLUSH, Front.SYNC):
                continue
            self.state = state
            if kind == Front.TERMINATE:
                return messages.message(Front.COPY_FAIL, b"the client has gone\0")
            if body is None:
                raise StatementTooLarge(
                    "a COPY message is too long", hint="send the data in smaller CopyData messages"
                )
            return messages.message(kind, body)


def as_ours(error: Exception) -> QueryFluxError:
    """The error a client is told; one of the rooms' tree passes as it is."""
    if isinstance(error, QueryFluxError):
        return error
    log.error("the PostgreSQL door failed", exc_info=error)
    return InternalError("internal error")


def session_of(catalog: str | None, extra: Mapping[str, str], peer: str) -> Session:
    """The surroundings of a statement. A ``search_path`` that the client set gives the schema."""
    return Session(
        ClientProtocol.POSTGRES_WIRE,
        catalog=catalog,
        database=_first_schema(extra.get("search_path", "")),
        tags=parse_tags(extra["query_tags"]) if extra.get("query_tags") else EMPTY,
        extra=extra,
        peer=peer,
    )


_NO_SCHEMAS = {"", "public", "$user", "pg_catalog", "pg_temp"}


def _first_schema(search_path: str) -> str | None:
    names = (name.strip().strip('"') for name in search_path.split(","))
    return next((name for name in names if name not in _NO_SCHEMAS), None)
