"""One statement of a client: answered here when it is about the connection, else submitted."""

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from queryflux.frontends.mysql.answers import Process, Question, Table
from queryflux.frontends.mysql.answers import answer as local_answer
from queryflux.frontends.mysql.exchange import Exchange
from queryflux.frontends.mysql.expressions import evaluate, substitute
from queryflux.frontends.mysql.local import (
    Kill,
    Local,
    SelectItems,
    SetVariables,
    ShowDiagnostics,
    ShowProcesses,
    UseDatabase,
    read_local,
)
from queryflux.frontends.mysql.results import ResultWriter, expect_rows
from queryflux.frontends.mysql.session import ClientSession
from queryflux.frontends.mysql.transactions import DIALECT, Transactions
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.model.settings import NO_LIMIT
from queryflux.model.statement import Parameter, Statement
from queryflux.pipeline.face import Conversation, Query, StatementKind, TransactionStatus
from queryflux.results.answer import Answer, Batches, Done
from queryflux.runtime.clock import Timer
from queryflux.wire.mysql import replies
from queryflux.wire.mysql.constants import Capability as ClientCapability
from queryflux.wire.mysql.constants import ServerStatus
from queryflux.wire.mysql.errors import EMPTY_QUERY, ServerError

if TYPE_CHECKING:
    from queryflux.frontends.mysql.door import MysqlDoor

log = logging.getLogger(__name__)

_LISTING_SECS = 5.0
_CONTROL = frozenset({StatementKind.BEGIN, StatementKind.COMMIT, StatementKind.ROLLBACK})
_TO_SAVEPOINT = re.compile(r"\s*rollback\s+(?:work\s+)?to\b", re.IGNORECASE)


class StatementRunner:
    """Runs the statements of one client, one at a time, and queues their answers."""

    def __init__(
        self,
        door: "MysqlDoor",
        exchange: Exchange,
        session: ClientSession,
        conversation: Conversation,
        capabilities: ClientCapability,
    ) -> None:
        self.session = session
        self.converse(conversation)
        self.running: Query | None = None
        self.text = ""
        """The statement that runs, for SHOW PROCESSLIST."""
        self._door = door
        self._exchange = exchange
        self._tracks = bool(capabilities & ClientCapability.SESSION_TRACK)
        self.writer = ResultWriter(
            exchange, door.threads, deprecate_eof=bool(capabilities & ClientCapability.DEPRECATE_EOF)
        )

    def converse(self, conversation: Conversation) -> None:
        """Go on with a conversation that is new."""
        self.conversation = conversation
        self.transactions = Transactions(self.session, conversation)

    def status(self, more: bool = False) -> int:
        """Status flags as they are now; ``more``: another result follows."""
        flags = ServerStatus.MORE_RESULTS.value if more else 0
        if self.session.variables.autocommit:
            flags |= ServerStatus.AUTOCOMMIT.value
        if self.conversation.transaction is not TransactionStatus.IDLE:
            flags |= ServerStatus.IN_TRANS.value
        return flags

    def ok(self, more: bool = False, affected: int = 0) -> None:
        """Queue an OK packet."""
        self._exchange.add(replies.ok(self.status(more), affected=affected))

    async def run(
        self,
        text: str,
        parameters: tuple[Parameter, ...] = (),
        *,
        binary: bool = False,
        more: bool = False,
    ) -> None:
        """Run a statement. Raises QueryFluxError; ConnectionError when the client has gone."""
        kind = self._door.pipeline.classify(text, DIALECT).kind
        if kind is StatementKind.EMPTY:
            raise ServerError(EMPTY_QUERY, "Query was empty")
        self.text = text
        self._door.questions += 1
        try:
            local = read_local(text, kind)
            if local is not None:
                await self._local(local, binary, more)
            elif kind in _CONTROL and not _TO_SAVEPOINT.match(text):
                await self.transactions.control(kind, text)
                self.session.error = None
                self.ok(more)
            else:
                await self._submit(text, kind, parameters, binary, more)
        finally:
            self.text = ""

    # About the connection.

    async def _local(self, local: Local, binary: bool, more: bool) -> None:
        session = self.session
        if isinstance(local, SetVariables):
            await self._set(local)
            self.ok(more)
        elif isinstance(local, UseDatabase):
            await self.use(local.name, more)
        elif isinstance(local, Kill):
            await self.kill(evaluate(local.target, session), query_only=local.query_only)
            self.ok(more)
        else:
            shows_all = isinstance(local, ShowProcesses)
            processes = await self._door.processes(self.session) if shows_all else []
            table = self.local_table(local, processes)
            rows = self.writer.table(table, self.status(more), binary=binary)
            if isinstance(local, SelectItems):
                session.found_rows, session.row_count = rows, -1
            if isinstance(local, ShowDiagnostics):
                return
        session.error = None

    def local_table(self, local: Question, processes: Sequence[Process] = ()) -> Table:
        """The answer to a question about the connection; ``processes`` are what SHOW PROCESSLIST shows.
        Raises ServerError."""
        return local_answer(local, self.session, processes, self._door.status())

    async def _set(self, local: SetVariables) -> None:
        before = self.session.variables.autocommit
        self.session.assign(local.assignments)
        self.conversation.session = self.session.surroundings()
        if self.session.variables.autocommit and not before:
            await self.transactions.commit()

    async def use(self, database: str, more: bool = False) -> None:
        """Make ``database`` the default one, and say so. Raises EngineError 1049 when it certainly is not
        there."""
        await self._check(database)
        self.session.database = database
        self.conversation.session = self.session.surroundings()
        if self._tracks:
            change = replies.schema_change(database)
            self._exchange.add(replies.ok_with_state(self.status(more), change))
        else:
            self.ok(more)

    async def _check(self, database: str) -> None:
        """An engine of MySQL's own protocol judges itself, at the next statement; where the names of
        databases cannot be had in time, any will do."""
        conversation = self.conversation
        if conversation.speaks() is ClientProtocol.MYSQL_WIRE:
            return
        question = Statement("USE `" + database.replace("`", "``") + "`", DIALECT)
        try:
            async with asyncio.timeout(_LISTING_SECS):
                await conversation.describe(question)
        except TimeoutError:
            log.info("USE %s was not checked: the list of tables takes too long", database)
        except QueryFluxError as error:
            if isinstance(error, EngineError) and error.kind is EngineErrorKind.SCHEMA_NOT_FOUND:
                raise
            log.info("USE %s was not checked: %s", database, error)

    async def kill(self, target: str | int | None, *, query_only: bool) -> None:
        """KILL. Raises ServerError 1094 or 1095."""
        try:
            number = int(target if target is not None else "")
        except ValueError:
            raise ServerError(1094, f"Unknown thread id: {target}") from None
        await self._door.kill(number, self.session.identity.user, query_only=query_only)

    # For an engine.

    async def _submit(
        self,
        text: str,
        kind: StatementKind,
        parameters: tuple[Parameter, ...],
        binary: bool,
        more: bool,
    ) -> None:
        if "@" in text:
            text = await self._door.threads.read(substitute, text, self.session.literal)
        await self.transactions.before(text, kind)
        try:
            await self._execute(Statement(text, DIALECT, parameters), kind, binary, more)
        except QueryFluxError as error:
            told = await self.transactions.failed(error)
            if told is error:
                raise
            raise told from error
        self.transactions.after(text, kind)

    async def _execute(self, statement: Statement, kind: StatementKind, binary: bool, more: bool) -> None:
        query = self.conversation.submit(statement)
        reason = EndReason.FAILED
        timer = self._limit_time(query, kind)
        self.running = query
        self._exchange.stream.on_gone(lambda: self._stop(query, EndReason.CLIENT_GONE))
        try:
            answer = await query.start()
            await self._deliver(query, answer, kind, binary, more)
            self.session.error = None
        except ConnectionError:
            reason = EndReason.CLIENT_GONE
            raise
        except asyncio.CancelledError:
            reason = EndReason.SHUTDOWN
            raise
        finally:
            self._exchange.stream.on_gone(None)
            self.running = None
            if timer is not None:
                timer.cancel()
            await query.close(reason)

    async def _deliver(
        self, query: Query, answer: Answer, kind: StatementKind, binary: bool, more: bool
    ) -> None:
        answer = expect_rows(answer)
        session = self.session
        if isinstance(answer, Batches) and len(answer.schema):
            limit = session.variables.number("sql_select_limit") if kind is StatementKind.QUERY else NO_LIMIT
            status = self.status(more)
            sent = await self.writer.rows(query, answer, status, binary=binary, limit=limit)
            session.found_rows, session.row_count = sent, -1
            self.writer.end(self.status(more))
            return
        while await query.next() is not None:
            pass  # a result without columns has nothing to show
        affected = (answer.rows or 0) if isinstance(answer, Done) else 0
        session.found_rows, session.row_count = 0, affected
        self.ok(more, affected)

    def _limit_time(self, query: Query, kind: StatementKind) -> Timer | None:
        """``max_execution_time``, in milliseconds, which is for reads alone."""
        limit = self.session.variables.number("max_execution_time")
        if not limit or kind is not StatementKind.QUERY:
            return None
        return self._door.clock.call_later(limit / 1000, lambda: self._stop(query, EndReason.TIMED_OUT))

    def stop(self) -> None:
        """KILL QUERY: cancel what runs now, and nothing that comes after it."""
        if self.running is not None:
            self._stop(self.running, EndReason.CANCELLED)

    def _stop(self, query: Query, reason: EndReason) -> None:
        self._door.tasks.spawn("cancel", query.cancel(reason))
