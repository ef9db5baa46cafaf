"""Flight SQL without gRPC: what each request does, on the loop.

A statement outside a transaction has a conversation of its own, which ends with its result.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pyarrow as pa

from queryflux.frontends.flight_sql import metadata
from queryflux.frontends.flight_sql.caller import Client
from queryflux.frontends.flight_sql.elsewhere import Elsewhere
from queryflux.frontends.flight_sql.handles import Handles, Limits
from queryflux.frontends.flight_sql.marks import ON_THE_LOOP, numbered
from queryflux.frontends.flight_sql.parameters import schema_of as parameter_schema
from queryflux.frontends.flight_sql.plain import plain_schema
from queryflux.frontends.flight_sql.sql_info import sql_info
from queryflux.frontends.flight_sql.statements import DIALECT, check_statement
from queryflux.frontends.flight_sql.stream import Opened, QueryStream, Stream
from queryflux.frontends.flight_sql.transactions import Transactions
from queryflux.frontends.flight_sql.updates import Row, Update
from queryflux.model.errors import (
    InvalidRequest,
    NotSupported,
    QueryFluxError,
    ShuttingDown,
    StatementTooLarge,
    TooManyConnections,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.face import Capability, Conversation, Pipeline
from queryflux.results.held import HeldTable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Count
from queryflux.runtime.siblings import Siblings
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.threads import in_thread
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message

log = logging.getLogger(__name__)

TICKETS = Limits(most=10_000, most_bytes=256 * 1024 * 1024, idle_secs=300.0)
PREPARED = Limits(most=10_000, most_bytes=256 * 1024 * 1024, idle_secs=8 * 3600.0)


@dataclass(slots=True)
class Prepared:
    """A prepared statement, and the row of parameters bound to it last, with its size in bytes."""

    text: str
    transaction_id: bytes
    row: Row = ()
    row_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """What a ticket for a statement stands for."""

    text: str
    transaction_id: bytes
    row: Row = ()


class FlightSqlService:
    """One door's tickets, prepared statements, transactions and results."""

    def __init__(
        self,
        pipeline: Pipeline,
        clock: Clock,
        process_tag: str,
        *,
        most_results: int,
        refused: Count,
        siblings: Siblings | None = None,
    ) -> None:
        """``most_results`` may be fetched at a time; 0: no limit. ``siblings`` redeem each other's
        tickets."""
        self._pipeline = pipeline
        self._most_results = most_results
        self._refused = refused
        self._tickets: Handles[Ready | Message] = Handles("ticket", TICKETS, clock, process_tag)
        self._prepared: Handles[Prepared] = Handles("prepared statement", PREPARED, clock, process_tag)
        self._tasks = TaskGroup("flightSql")
        self._transactions = Transactions(clock, process_tag, self._tasks)
        self._results: dict[Opened, bytes] = {}
        """What is being fetched, each with its handle. Two may ask for one handle: its maker gives it to one
        of them."""
        self._none_left = asyncio.Event()
        self._elsewhere = Elsewhere(siblings, self) if siblings is not None else None
        self.draining = False

    # GetFlightInfo and GetSchema.

    async def ticket(self, client: Client, command: Message) -> tuple[bytes, pa.Schema | None]:
        """A ticket for what a command asks, and the schema where it is known beforehand. Raises
        QueryFluxError."""
        work: Ready | Message
        schema = metadata.schema_of(command)
        if schema is not None:
            work = command
            size = self._check_size("the command", len(m.pack(command)))
        elif isinstance(command, m.CommandStatementQuery):
            size = self._check(command.query, command.transaction_id)
            work = Ready(command.query, command.transaction_id)
        elif isinstance(command, m.CommandPreparedStatementQuery):
            prepared = self._prepared.get(command.handle, client.identity)
            # No schema: that of the rows may depend on the parameters, and clients hold us to a promise.
            work = Ready(prepared.text, prepared.transaction_id, prepared.row)
            size = prepared.row_bytes
        else:
            raise InvalidRequest(f"{type(command).__name__} has no result set to fetch")
        self._tickets.expired()
        handle = self._tickets.add(client.identity, work, size)
        return m.pack(m.TicketStatementQuery(handle)), schema

    async def schema(self, client: Client, command: Message) -> pa.Schema:
        """The schema of a command's result, without running it. Raises QueryFluxError."""
        fixed = metadata.schema_of(command)
        if fixed is not None:
            return fixed
        if isinstance(command, m.CommandStatementQuery):
            self._check(command.query, command.transaction_id)
            text, transaction_id = command.query, command.transaction_id
        elif isinstance(command, m.CommandPreparedStatementQuery):
            prepared = self._prepared.get(command.handle, client.identity)
            text, transaction_id = prepared.text, prepared.transaction_id
        else:
            raise InvalidRequest(f"{type(command).__name__} has no result set")
        async with self._talking(client, transaction_id) as talk:
            shape = await talk.describe(Statement(text, DIALECT))
        return plain_schema(shape.schema) if shape.schema is not None else pa.schema([])

    # DoGet.

    async def open(self, client: Client, ticket: bytes, opened: Opened) -> None:
        """Use up a ticket and run what it stands for; ``opened`` then has the rows. Raises
        QueryFluxError."""
        handle = handle_of(ticket)
        if self._most_results and len(self._results) >= self._most_results:
            self._refused.inc()
            raise TooManyConnections(
                f"maxConnections ({self._most_results}) results are being fetched already", hint="try again"
            )
        elsewhere = self._elsewhere
        tag = elsewhere.owner(handle) if elsewhere is not None else ""
        work = self._tickets.take(handle, client.identity) if not tag else None
        opened.owner = client.identity.user
        opened.on_end = lambda: self._forget(opened)
        self._results[opened] = handle
        try:
            if work is not None:
                opened.stream = await self._run_work(client, work, opened)
            elif elsewhere is not None:
                opened.stream = await elsewhere.open(tag, client, ticket)
        except BaseException:
            self._forget(opened)
            raise

    def _forget(self, opened: Opened) -> None:
        self._results.pop(opened, None)
        if not self._results:
            self._none_left.set()

    async def _run_work(self, client: Client, work: Ready | Message, opened: Opened) -> Stream:
        if isinstance(work, Ready):
            return await self._run(client, work, opened)
        if isinstance(work, m.CommandGetSqlInfo):
            return HeldTable(sql_info(work.info, transactions=await self._has_transactions(client)))

        async def ask(sql: str) -> pa.Table:
            stream = await self._run(client, Ready(sql, b""), opened)
            batches = []
            try:
                while (batch := await stream.next()) is not None:
                    batches.append(batch)
            finally:
                await stream.close()
            return pa.Table.from_batches(batches, stream.schema)

        async with self._talking(client, b"") as talk:

            async def schema_of_select(sql: str) -> pa.Schema | None:
                described = (await talk.describe(Statement(sql, DIALECT))).schema
                return None if described is None else plain_schema(described)

            return HeldTable(await metadata.answer(work, ask, schema_of_select))

    async def _has_transactions(self, client: Client) -> bool:
        try:
            async with self._talking(client, b"") as talk:
                return talk.can(Capability.TRANSACTIONS)
        except QueryFluxError:
            # Nothing can be reached for this client just now; what the server is can be told all the same.
            return False

    async def _run(self, client: Client, work: Ready, opened: Opened) -> QueryStream:
        talk, leave = await self._conversation(client, work.transaction_id)
        if work.transaction_id:
            self._transactions.find(work.transaction_id, client.identity).opened = opened
        try:
            query = opened.query = talk.submit(Statement(work.text, DIALECT, work.row))
            try:
                return QueryStream(query, await query.start(), leave)
            except BaseException:
                await query.close()
                raise
        except BaseException:
            await leave()
            raise

    # DoPut.

    async def update(self, client: Client, command: Message, update: Update) -> Row:
        """Begin an update, and give the parameters for it when the client sends none. Raises
        QueryFluxError."""
        row: Row = ()
        if isinstance(command, m.CommandPreparedStatementUpdate):
            prepared = self._prepared.get(command.handle, client.identity)
            text, transaction_id, row = prepared.text, prepared.transaction_id, prepared.row
        elif isinstance(command, m.CommandStatementUpdate):
            text, transaction_id = command.query, command.transaction_id
            self._check(text, transaction_id)
        else:
            raise NotSupported(f"Flight SQL: DoPut of {type(command).__name__} is not supported")
        talk, leave = await self._conversation(client, transaction_id)
        update.begin(talk, leave, text, in_transaction=bool(transaction_id))
        return row

    async def bind(self, client: Client, handle: bytes, row: Row, size: int) -> None:
        """Keep the parameters, of ``size`` bytes, for the next run of a prepared query. Raises
        QueryFluxError."""
        prepared = self._prepared.get(handle, client.identity)
        self._check_size("the row of parameters", size)
        self._prepared.grow(handle, client.identity, size - prepared.row_bytes)
        prepared.row, prepared.row_bytes = row, size

    # Actions.

    async def prepare(
        self, client: Client, request: m.ActionCreatePreparedStatementRequest
    ) -> m.ActionCreatePreparedStatementResult:
        """Keep a statement under a handle, described where the engine can. Raises QueryFluxError."""
        size = self._check(request.query, request.transaction_id)
        prepared = Prepared(await _numbered(request.query), request.transaction_id)
        dataset = parameters = b""
        try:
            async with self._talking(client, request.transaction_id) as talk:
                shape = await talk.describe(Statement(prepared.text, DIALECT))
        except NotSupported:
            log.debug("the engine does not describe statements")
        else:
            if shape.schema is not None:
                dataset = plain_schema(shape.schema).serialize().to_pybytes()
            if shape.parameter_types:
                parameters = parameter_schema(shape.parameter_types).serialize().to_pybytes()
        self._prepared.expired()
        handle = self._prepared.add(client.identity, prepared, size)
        return m.ActionCreatePreparedStatementResult(handle, dataset, parameters)

    async def close_prepared(self, client: Client, handle: bytes) -> None:
        """Forget a prepared statement. Raises QueryFluxError."""
        self._prepared.take(handle, client.identity)

    async def begin(self, client: Client) -> bytes:
        """Begin a transaction; its id. Raises QueryFluxError."""
        talk, _ = await self._conversation(client, b"")
        return await self._transactions.begin(talk)

    async def end(self, client: Client, transaction_id: bytes, action: int) -> None:
        """Commit or roll back. Raises as ``Transactions.end``."""
        await self._transactions.end(transaction_id, client.identity, action)

    async def close_session(self, client: Client) -> m.CloseSessionStatus:
        """The client says that it goes: roll back what it left open."""
        await self._transactions.abandoned(client.identity, client.peer)
        return m.CloseSessionStatus.CLOSED

    async def cancel(self, client: Client, info: bytes) -> m.CancelStatus:
        """Cancel what a FlightInfo stands for, whether it runs or waits for its DoGet. Raises
        QueryFluxError."""
        handle = handle_of(m.ticket_of(info))
        elsewhere = self._elsewhere
        if elsewhere is not None and (tag := elsewhere.owner(handle)):
            return await elsewhere.cancel(tag, client, info)
        opened = next((opened for opened, its in self._results.items() if its == handle), None)
        if opened is not None and opened.owner == client.identity.user:
            if opened.query is not None:
                await opened.query.cancel()
            await opened.close()
        else:
            self._tickets.take(handle, client.identity)
        return m.CancelStatus.CANCELLED

    # Conversations.

    @asynccontextmanager
    async def _talking(self, client: Client, transaction_id: bytes) -> AsyncIterator[Conversation]:
        talk, leave = await self._conversation(client, transaction_id)
        try:
            yield talk
        finally:
            await leave()

    async def _conversation(
        self, client: Client, transaction_id: bytes
    ) -> tuple[Conversation, Callable[[], Awaitable[None]]]:
        """A conversation for one statement, and what to await when the statement has ended."""
        if transaction_id:
            transaction = self._transactions.find(transaction_id, client.identity)
            await transaction.take_turn()
            try:
                self._transactions.find(transaction_id, client.identity)
            except QueryFluxError:
                # It ended while this statement waited for its turn.
                await transaction.leave()
                raise
            return transaction.talk, transaction.leave
        if self.draining:
            raise ShuttingDown("this server is shutting down", hint="connect again: another may take over")
        self._pipeline.check_ready()
        session = Session(ClientProtocol.FLIGHT_SQL, extra=client.headers, peer=client.peer)
        talk = self._pipeline.converse(client.identity, session)
        return talk, talk.close

    def _check_size(self, what: str, size: int) -> int:
        most = self._pipeline.max_statement_bytes
        if size > most:
            raise StatementTooLarge(f"{what} has {size} bytes and maxStatementBytes is {most}")
        return size

    def _check(self, text: str, transaction_id: bytes) -> int:
        return check_statement(self._pipeline, text, in_transaction=bool(transaction_id))

    # The end.

    async def wait_for_results(self) -> None:
        """Return when no result is being fetched."""
        while self._results:
            self._none_left.clear()
            await self._none_left.wait()

    async def close(self) -> None:
        """End every result and every transaction, and forget the rest."""
        self.draining = True
        endings = [opened.close() for opened in self._results]
        for outcome in await asyncio.gather(*endings, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("Flight SQL: ending a result failed", exc_info=outcome)
        await self._transactions.close()
        self._tickets.clear()
        self._prepared.clear()
        await self._tasks.close()


def handle_of(ticket: bytes) -> bytes:
    """The handle in one of our tickets. Raises QueryFluxError."""
    message = m.unpack(ticket)
    if not isinstance(message, m.TicketStatementQuery):
        raise InvalidRequest("this is no ticket of ours")
    return message.handle


async def _numbered(text: str) -> str:
    if len(text) <= ON_THE_LOOP or "?" not in text:
        return numbered(text)
    return await in_thread("placeholders", numbered, text)
