"""A session: messages in, in order, until the client or the process ends it.

Pipelined messages wait in the decoder while a query runs; a connection that closes stops it at once.
"""

from queryflux.frontends.postgres.client import FAULTS, Client
from queryflux.frontends.postgres.extended import Extended
from queryflux.frontends.postgres.moving import move_of
from queryflux.frontends.postgres.quick import QuickWay
from queryflux.frontends.postgres.simple import simple_query
from queryflux.model.endings import EndReason
from queryflux.model.errors import NotSupported, ProtocolViolation, QueryFluxError, StatementTooLarge
from queryflux.pipeline.face import TransactionStatus
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Front
from queryflux.wire.postgres.errors import PostgresError, error_response
from queryflux.wire.postgres.lifecycle import Session, next_session

_COPY = frozenset({Front.COPY_DATA, Front.COPY_DONE, Front.COPY_FAIL})


class PostgresSession:
    """Runs one authenticated client. ``run`` returns when it is over; nothing of it is left then."""

    def __init__(self, client: Client, tasks: TaskGroup) -> None:
        self._client = client
        self._extended = Extended(client)
        self._quick = QuickWay(client)
        self._tasks = tasks
        self._reading = False
        self._stopping = False

    async def run(self) -> None:
        """Serve the client to its end."""
        client = self._client
        client.stream.on_gone(self._gone)
        try:
            await self._serve()
        except ProtocolViolation as error:
            self._say_goodbye(error)
        finally:
            client.stream.on_gone(None)
            try:
                await self._extended.end()
            finally:
                await client.conversation.close()

    def _gone(self) -> None:
        self._tasks.spawn("client gone", self._client.conversation.cancel(EndReason.CLIENT_GONE))

    async def _serve(self) -> None:
        client = self._client
        decoder, outbox = client.decoder, client.outbox
        while client.state is not Session.CLOSED:
            if self._stopping and self._between():
                self._part()
                return
            found = decoder.next()
            if found is None:
                outbox.flush()
                if client.stream.unsent:
                    await outbox.drain()
                data = await self._read()
                if not data:
                    return
                decoder.feed(data)
                continue
            before = client.state
            client.state = next_session(before, found[0])
            if not (before is Session.SKIPPING and client.state is Session.SKIPPING):
                await self._take(found[0], found[1], before)
            if outbox.full:
                await outbox.room()

    async def _read(self) -> bytes:
        """The next bytes that are not for the quick way; empty at the end."""
        quick = self._quick
        alone = self._client.decoder.empty
        while True:
            self._reading = True
            data = await (quick.read() if alone else self._client.stream.read())
            self._reading = False
            if data is not None:
                return data
            await quick.go_on()
            if self._stopping and self._between():
                self._part()
                return b""

    async def _take(self, kind: int, body: bytes | None, before: Session) -> None:
        client = self._client
        if kind == Front.SYNC:
            await self._sync(before)
        elif kind == Front.QUERY:
            await self._query(body, before)
        elif kind == Front.FUNCTION_CALL:
            client.report(NotSupported("function calls are not supported", hint="use SELECT function(...)"))
            client.ready()
        elif kind not in _COPY and kind != Front.TERMINATE:
            try:
                await self._extended_message(kind, body)
            except FAULTS as error:
                client.report(error)
                self._extended.failed()

    async def _extended_message(self, kind: int, body: bytes | None) -> None:
        extended = self._extended
        if body is None:
            raise self._too_long()
        self._client.query_id = ""
        if kind == Front.EXECUTE:
            await extended.execute(body)
            return
        if extended.waiting:
            await extended.settle()
        match kind:
            case Front.BIND:
                await extended.bind(body)
            case Front.PARSE:
                extended.parse(body)
            case Front.DESCRIBE:
                await extended.describe(body)
            case Front.CLOSE:
                await extended.close(body)
            case Front.FLUSH:
                self._client.outbox.flush()

    async def _sync(self, before: Session) -> None:
        await self._finish_batch(before)
        self._client.ready()

    async def _finish_batch(self, before: Session) -> bool:
        """Answer a Describe that waited, and end the batch. Whether all went well."""
        client, well = self._client, True
        if before is Session.BATCH:
            try:
                await self._extended.settle()
            except FAULTS as error:
                client.report(error)
                self._extended.failed()
                well = False
        try:
            await self._extended.sync()
        except FAULTS as error:
            client.report(error)
            well = False
        return well

    async def _query(self, body: bytes | None, before: Session) -> None:
        client = self._client
        try:
            if before is Session.BATCH and not await self._finish_batch(before):
                client.ready()
                return
            if body is None:
                raise self._too_long()
            text = messages.query(body)
            if self._extended.used:
                if (move := move_of(text)) is not None and await self._extended.move(*move):
                    client.ready()
                    return
                await self._extended.clear_unnamed()
        except FAULTS as error:
            client.report(error)
            client.ready()
            return
        try:
            await simple_query(client, text)
        except FAULTS as error:
            client.report(error)
            client.ready()
        if self._extended.used:
            await self._extended.transaction_over()

    def _too_long(self) -> StatementTooLarge:
        limit = self._client.pipeline.max_statement_bytes
        return StatementTooLarge(
            f"the statement, or its parameters, are over the limit of {limit} bytes (maxStatementBytes)",
            hint="send it in parts, or ask the operator to raise maxStatementBytes",
        )

    # Endings.

    def _between(self) -> bool:
        """Nothing is under way for this client."""
        idle = self._client.conversation.transaction is TransactionStatus.IDLE
        return self._client.state is Session.READY and idle

    def stop(self) -> None:
        """The process is going down: end now if nothing is under way, else as soon as that is so."""
        self._stopping = True
        if self._reading and self._between() and not self._quick.leave():
            self._part()

    def _part(self) -> None:
        self._say_goodbye(
            PostgresError("terminating connection due to administrator command", "57P01", hint="reconnect")
        )
        self._client.stream.close()

    def _say_goodbye(self, error: QueryFluxError) -> None:
        self._client.outbox.add(error_response(error, fatal=True))
        self._client.outbox.flush()
