"""One client's way to a coordinator: HTTP keeps no connection between statements, so what there is to keep is
the transaction's id, and for clients of other doors the session.

Nearly every statement of a Trino client is the ordinary one: outside a transaction, over a connection that is
there, answered at once and whole with a head like the one before. ``_relayed`` does that in one coroutine;
what turns out otherwise goes on with ``TrinoStatement``, from where it stands.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from queryflux.engines.control import spoken
from queryflux.engines.port import ConnectionSpec, EngineConnection, EngineRequest, TransactionStatus
from queryflux.engines.trino.batches import TrinoBatches, read_page
from queryflux.engines.trino.describe import shape
from queryflux.engines.trino.pages import PageWithRows
from queryflux.engines.trino.relay import TrinoRelay, for_the_client
from queryflux.engines.trino.rows import PlainRows, run
from queryflux.engines.trino.session import Pairs, SessionState, native_headers
from queryflux.engines.trino.statement import CANCEL_SECONDS, TrinoStatement, post_message, query_id_in
from queryflux.engines.trino.transactions import (
    NO_TRANSACTION,
    ROLLBACK,
    STARTED,
    TRANSACTION_ID,
    Control,
    control,
)
from queryflux.model.errors import InvalidRequest, QueryCancelled, QueryFluxError, TransactionFailed
from queryflux.results.answer import Answer, Done, EngineStats, Shape
from queryflux.runtime.connections import ANSWER_SECONDS
from queryflux.wire.http1 import Response
from queryflux.wire.trino.native import TrinoStatement as NativeStatement

if TYPE_CHECKING:
    from queryflux.engines.trino.engine import TrinoEngine


class TrinoConnection(EngineConnection):
    """Runs one statement at a time."""

    def __init__(self, engine: "TrinoEngine", spec: ConnectionSpec) -> None:
        self._engine = engine
        self._spec = spec
        self._base: Pairs = ()
        self._native: NativeStatement | None = None
        self._head = b""
        """Of the POST of a statement that comes with the headers of ``_native``, outside a transaction."""
        self._session = SessionState()
        self._transaction_id: str | None = None
        self._status = TransactionStatus.IDLE
        self._statement: TrinoStatement | None = None
        self._controlling: asyncio.Task[Done | QueryFluxError] | None = None
        self._unwanted = False
        """Whoever asked for the transaction that is being begun has gone."""
        self._closed = False

    @property
    def transaction(self) -> TransactionStatus:
        return self._status

    @property
    def running_id(self) -> str | None:
        statement = self._statement
        uri = None if statement is None or statement.ended else statement.next_uri
        return query_id_in(uri) if uri is not None else None

    def execute(self, request: EngineRequest) -> Coroutine[Any, Any, Answer]:
        native = request.native
        if type(native) is NativeStatement and self._transaction_id is None and self._controlling is None:
            statement = self._statement
            free = (statement is None or statement.ended) and not (self._closed or self._engine.closed)
            if free and spoken(request.sql) is None:
                return self._relayed(request.sql, native)
        return self._executed(request)

    async def _relayed(self, sql: str, native: NativeStatement) -> Answer:
        """The ordinary statement. Raises as ``execute``."""
        head = self._head if native is self._native else self._learn(native)
        engine = self._engine
        client = engine.client
        statement = self._statement = TrinoStatement(engine.way, self._base)
        message = post_message(head, sql)
        now = engine.clock.monotonic()
        connection = client.take(now)
        try:
            if connection is None:
                response = await statement.exchange("POST", message)
            else:
                statement.attach(connection.stream)
                connection.send("POST", message, now, ANSWER_SECONDS)
                data = await connection.stream.read()
                body = connection.parser.again(data, connection.ordinary)
                if body is not None:
                    connection.answered()
                    statement.detach()
                    client.done(connection)
                    return TrinoRelay(statement, body, sql, self._over)
                rest = client.receive(connection, statement, data)
                response = await statement.exchange("POST", message, rest)
            return TrinoRelay(statement, response.body, sql, self._over, for_the_client(response.pairs))
        except BaseException as error:
            if connection is not None and connection.busy:
                client.drop(connection)
            await statement.stop()
            self._over(error)
            raise

    def _learn(self, native: NativeStatement) -> bytes:
        """The head of a POST with these headers, for this and further statements. Raises InvalidRequest."""
        self._base = self._base or self._engine.base_headers(self._spec.identity)
        self._head = self._engine.way.post_head(self._base, self._native_headers(native))
        self._native = native
        return self._head

    async def _executed(self, request: EngineRequest) -> Answer:
        """Any statement."""
        self._check_free()
        command = control(request.sql)
        if command is not None:
            return await self._control(command)
        self._check_not_failed()
        statement = self._begin()
        try:
            sql, headers = await self._told(request)
            response = await statement.post(sql, headers)
            if isinstance(request.native, NativeStatement):
                return TrinoRelay(statement, response.body, sql, self._over, for_the_client(response.pairs))
            return await self._answer(statement, response, sql)
        except BaseException as error:
            await statement.stop()
            self._over(error)
            raise

    def resume(self, request: EngineRequest, uri: str, had: int) -> Answer:
        self._check_free()
        statement = self._begin()
        statement.next_uri = uri
        return TrinoRelay(statement, None, request.sql, self._over, had=had)

    async def describe(self, request: EngineRequest) -> Shape:
        self._check_free()
        if control(request.sql) is not None:
            return Shape((), None)
        self._check_not_failed()
        looking = self._begin()
        try:
            text, headers = await self._told(request)
        finally:
            self._over(None)
        if (cancelled := looking.why_ended()) is not None:
            raise cancelled

        async def ask(sql: str, more: tuple[tuple[str, str], ...]) -> PlainRows:
            statement = self._begin()
            try:
                return await run(statement, sql, (*headers, *more), shown=text)
            finally:
                self._over(None)

        try:
            return await shape(text, ask)
        except QueryFluxError:
            self._fail()
            raise

    async def cancel(self) -> None:
        if self._controlling is not None:
            await self._settle()
            return
        statement = self._statement
        if statement is not None and not statement.ended:
            self._fail()
            await statement.stop()

    async def sync(self) -> None:
        """Nothing to do: Trino has no batches of statements."""

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._settle()
        if self._statement is not None and not self._statement.ended:
            await self._statement.stop()
        if self._transaction_id is not None:
            with contextlib.suppress(QueryFluxError, TimeoutError):  # idle transactions end by themselves
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._say("ROLLBACK", self._transaction_id)
            self._transaction_id = None
            self._status = TransactionStatus.IDLE
        self._engine.forget(self)

    def leave(self) -> bool:
        if self._closed:
            return True
        statement = self._statement
        if self._transaction_id is not None or self._controlling is not None:
            return False
        if statement is not None and not statement.ended:
            return False
        self._closed = True
        self._engine.forget(self)
        return True

    # Beginning and ending a statement.

    def _check_free(self) -> None:
        if self._closed:
            raise InvalidRequest("the connection is closed")
        self._engine.check_open()
        if self._controlling is not None or (self._statement is not None and not self._statement.ended):
            raise InvalidRequest("another statement's result is still open; read or close it first")

    def _check_not_failed(self) -> None:
        if self._status is TransactionStatus.FAILED:
            raise TransactionFailed(
                "the transaction has failed; nothing runs in it any more", hint="Send ROLLBACK first."
            )

    def _begin(self) -> TrinoStatement:
        """Raises InvalidRequest for a user name that no header can hold."""
        engine = self._engine
        self._base = self._base or engine.base_headers(self._spec.identity)
        self._statement = engine.statement(self._base)
        return self._statement

    async def _told(self, request: EngineRequest) -> tuple[str, Pairs]:
        """The text and the headers of a statement. Raises InvalidRequest."""
        native = request.native
        if isinstance(native, NativeStatement):
            return request.sql, self._native_headers(native)
        places = self._engine.places
        sql = await places.spelled(request.session, request.sql)
        headers = self._session.headers(request, await places.names(request.session, sql))
        return sql, (*headers, self._transaction_header)

    def _native_headers(self, native: NativeStatement) -> Pairs:
        return (*native_headers(native), self._transaction_header)

    @property
    def _transaction_header(self) -> tuple[str, str]:
        return TRANSACTION_ID, self._transaction_id or NO_TRANSACTION

    def _over(self, failure: BaseException | None) -> None:
        self._statement = None
        if failure is not None:
            self._fail()

    def _fail(self) -> None:
        if self._status is TransactionStatus.OPEN:
            self._status = TransactionStatus.FAILED

    async def _answer(self, statement: TrinoStatement, response: Response, sql: str) -> Answer:
        """Poll until the columns are known, or it is over."""
        stats = EngineStats()
        headers: dict[str, str] = {}
        while True:
            page = read_page(statement, response.body, sql, stats)
            headers |= self._session.update(response.pairs)
            if page.columns and page.update_type is None:
                return self._batches(statement, page, sql, stats)
            if statement.ended:
                self._over(None)
                tag = page.update_type or _tag(sql)
                return Done(tag, page.update_count, stats, headers)
            response = await statement.get()

    def _batches(
        self, statement: TrinoStatement, page: PageWithRows, sql: str, stats: EngineStats
    ) -> TrinoBatches:
        from queryflux.engines.trino.columns import Columns  # pyarrow: only where pages are decoded
        from queryflux.engines.trino.types import from_signature

        described: list[Any] = list(page.columns or ())
        columns = Columns(
            [column.name for column in described],
            [from_signature(column.type_signature, column.type) for column in described],
        )
        return TrinoBatches(statement, columns, page, sql, stats, self._engine.decode, self._over)

    # Transactions.

    async def _control(self, command: Control) -> Done:
        """In a task of its own, which goes on when the client does not wait: of a transaction that began
        meanwhile, or did not end, nobody would know. Raises QueryCancelled for a BEGIN that was cancelled."""
        was_idle = self._status is TransactionStatus.IDLE
        try:
            outcome = await asyncio.shield(self._spawn(command))
        except asyncio.CancelledError:
            await self._settle()
            if was_idle and self._transaction_id is not None:  # begun just before the client went
                await asyncio.shield(self._spawn(ROLLBACK))
            raise
        if isinstance(outcome, QueryFluxError):
            raise outcome
        return outcome

    def _spawn(self, command: Control) -> "asyncio.Task[Done | QueryFluxError]":
        task = self._engine.tasks.spawn("transaction", self._controlled(command))
        self._controlling = task
        return task

    async def _settle(self) -> None:
        """Nobody waits for BEGIN, COMMIT or ROLLBACK any more: see it to its end, or after CANCEL_SECONDS
        break it off."""
        task = self._controlling
        if task is None:
            return
        self._unwanted = True
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        if not task.done() and self._statement is not None:
            await self._statement.stop()
            await asyncio.wait({task})

    async def _controlled(self, command: Control) -> Done | QueryFluxError:
        try:
            return await self._apply(command)
        except QueryFluxError as error:
            return error  # whoever waited may be gone, and it is no fault of ours
        finally:
            self._controlling = None
            self._unwanted = False

    async def _apply(self, command: Control) -> Done:
        """As PostgreSQL does: BEGIN in a transaction and COMMIT outside one change nothing, and COMMIT of a
        failed transaction rolls it back."""
        if command.tag == "BEGIN":
            self._check_not_failed()
            if self._status is TransactionStatus.IDLE:
                await self._start_transaction(command.sql)
            return Done("BEGIN")
        if self._transaction_id is None:
            self._status = TransactionStatus.IDLE
            return Done(command.tag)
        tag = "ROLLBACK" if self._status is TransactionStatus.FAILED else command.tag
        transaction, self._transaction_id = self._transaction_id, None
        self._status = TransactionStatus.IDLE
        if tag == "COMMIT":
            await self._say(tag, transaction)
        else:
            await self._roll_back(transaction)
        return Done(tag)

    async def _roll_back(self, transaction: str) -> None:
        with contextlib.suppress(QueryFluxError):  # one that Trino has forgotten is rolled back
            await self._say("ROLLBACK", transaction)

    async def _start_transaction(self, sql: str) -> None:
        rows = await self._say(sql, NO_TRANSACTION)
        started = rows.headers.get(STARTED)
        if started is None:
            raise InvalidRequest("Trino did not start a transaction")
        if self._unwanted:
            await self._roll_back(started)
            raise QueryCancelled("the query was cancelled")
        self._transaction_id = started
        self._status = TransactionStatus.OPEN

    async def _say(self, sql: str, transaction: str) -> PlainRows:
        statement = self._begin()
        try:
            return await run(statement, sql, ((TRANSACTION_ID, transaction),))
        finally:
            self._over(None)


def _tag(sql: str) -> str:
    """The first word, for a statement that Trino does not name."""
    for line in sql.splitlines():
        words = line.partition("--")[0].split()
        if words:
            return words[0].upper().rstrip(";")
    return ""
