"""The extended query protocol: prepared statements and portals.

Parse and Bind are answered at once; the engine first hears of a statement with Describe or Execute, so that a
client's Parse, Bind, Describe, Execute and Sync are one question to it. What comes next in the client's bytes
is looked at for that: Describe of a portal waits for the message after it, and Execute knows whether Sync
follows.
"""

from typing import cast

from queryflux.frontends.postgres.answers import (
    open_rows,
    suspended,
    write_reply_rows,
)
from queryflux.frontends.postgres.client import DIALECT, Client
from queryflux.frontends.postgres.commands import (
    CONTROL,
    SPECIAL,
    DeallocateCommand,
    SetCommand,
    ShowCommand,
    TypesCommand,
    done_tag,
    number_command,
    read_command,
    rows_tag,
)
from queryflux.frontends.postgres.describing import Describer, refuse_foreign
from queryflux.frontends.postgres.introspection import PARAMETERS, asks_for_types, types_reply
from queryflux.frontends.postgres.moving import Skipped
from queryflux.frontends.postgres.portals import Portals
from queryflux.frontends.postgres.prepared import Described, Portal, Prepared
from queryflux.frontends.postgres.simple import control
from queryflux.model.errors import QueryFluxError
from queryflux.model.statement import Parameter, Statement
from queryflux.pipeline.face import StatementKind, TransactionStatus
from queryflux.results.answer import Done, Frames
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Front
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.native import PLAIN_WORDS, ExtendedQuery
from queryflux.wire.postgres.relayed import first_description
from queryflux.wire.postgres.types import BoundParameters


class Extended:
    """The extended protocol of one client. Methods raise QueryFluxError; the caller reports it and skips to
    Sync."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._portals = Portals(client)
        self._describer = Describer(client, self._portals)
        self.used = False
        """Whether there was a Parse or Bind: else there is nothing to clear."""
        self.waiting: Portal | None = None
        """A portal whose Describe waits for the next message."""
        self._unsynced = False
        """Something has run since the last Sync that the engine has not been told the end of."""
        self._failed = False

    # Messages.

    def parse(self, body: bytes) -> None:
        """Parse."""
        client = self._client
        self.used = True
        message = messages.parse(body)
        if message.name:
            client.prepared.check(message.name)
        client.prepared.add(message.name, self._prepare(message.sql, message.oids), len(body))
        client.outbox.add(messages.PARSE_COMPLETE)

    def _prepare(self, sql: str, oids: tuple[int, ...]) -> Prepared:
        client = self._client
        if ";" in sql:
            statements = client.pipeline.split(sql, DIALECT)
            if len(statements) > 1:
                raise PostgresError("cannot insert multiple commands into a prepared statement", "42601")
            sql = statements[0] if statements else ""
        if (number := number_command(sql)) is not None:
            return Prepared(sql, oids, client.classify(sql), number)
        if sql[:6].lower() in PLAIN_WORDS:
            return Prepared(sql, oids, None)
        classification = client.classify(sql)
        if classification.kind is StatementKind.EMPTY:
            return Prepared(sql, oids, classification, empty=True)
        if classification.kind is StatementKind.QUERY and asks_for_types(sql):
            return Prepared(sql, oids, classification, TypesCommand())
        command = read_command(sql, classification) if classification.kind in SPECIAL else None
        if isinstance(command, ShowCommand) and command.name and not client.settings.is_known(command.name):
            command = None
        return Prepared(sql, oids, classification, command)

    async def bind(self, body: bytes) -> None:
        """Bind."""
        client = self._client
        self.used = True
        message = messages.bind(body)
        statement = client.prepared.named(message.statement)
        await self._portals.add(message.portal, Portal(statement, message), len(body))
        client.outbox.add(messages.BIND_COMPLETE)

    async def describe(self, body: bytes) -> None:
        """Describe. That of a portal may wait for the message after it."""
        kind, name = messages.target(body)
        if kind == "S":
            await self._describer.statement(self._client.prepared.named(name))
            return
        if name and self._portals.get(name) is None and self._client.native():
            await self._describer.cursor(name)
            return
        portal = self._portals.named(name)
        if portal.query is None and self._client.decoder.peek() in (None, Front.EXECUTE):
            self.waiting = portal
        else:
            await self._describer.portal(portal)

    async def settle(self) -> None:
        """Answer a Describe that waited: what came next was not its Execute."""
        portal, self.waiting = self.waiting, None
        if portal is not None:
            await self._describer.portal(portal)

    async def execute(self, body: bytes) -> None:
        """Execute."""
        await self._execute(*messages.execute(body))

    async def _execute(self, name: str, limit: int) -> None:
        portal = self._portals.get(name)
        describe = portal is not None and portal is self.waiting
        if describe:
            self.waiting = None
        else:
            await self.settle()
        portal = self._portals.named(name)
        if portal.finished:
            self._again(portal)
        elif portal.reply is not None:
            self._reply(portal, limit)
        elif portal.query is not None:
            await self._resume(portal, limit)
        else:
            await self._begin(portal, limit, describe)

    async def move(self, name: str, count: int) -> bool:
        """MOVE by ``count`` rows (0: all), in a simple query. False when there is no such portal."""
        if self._portals.get(name) is None:
            return False
        client = self._client
        outbox, client.outbox = client.outbox, (skipped := Skipped(client.outbox))
        failure = None
        try:
            await self._execute(name, count)
        except QueryFluxError as error:
            self._failed, failure = True, error
        finally:
            client.outbox = outbox
        await self.sync()
        if failure is not None:
            raise failure
        if not skipped.failed:
            outbox.add(messages.command_complete(f"MOVE {skipped.rows}"))
        return True

    async def close(self, body: bytes) -> None:
        """Close; of something unknown too."""
        kind, name = messages.target(body)
        if kind == "S":
            self._client.prepared.discard(name)
        else:
            await self._portals.remove(name)
        self._client.outbox.add(messages.CLOSE_COMPLETE)

    async def sync(self) -> None:
        """Sync: the end of a batch, and of an implicit transaction. Raises what its commit raises."""
        conversation = self._client.conversation
        failed, self._failed = self._failed, False
        unsynced, self._unsynced = self._unsynced, False
        self.waiting = None
        await self._portals.transaction_over()
        if unsynced or failed:
            await conversation.sync(failed)

    def failed(self) -> None:
        """A message of the batch has failed."""
        self._failed = True
        self.waiting = None

    async def clear_unnamed(self) -> None:
        """A simple query comes: it drops the unnamed statement and portal, and runs alone."""
        self._client.prepared.discard("")
        await self._portals.remove("")
        await self._portals.make_way(None)

    async def end(self) -> None:
        """The session ends, or a transaction has: portals go."""
        await self._portals.clear()

    async def transaction_over(self) -> None:
        """Portals do not outlive their transaction."""
        await self._portals.transaction_over()

    # Execute.

    async def _begin(self, portal: Portal, limit: int, describe: bool) -> None:
        client = self._client
        statement = portal.statement
        await self._portals.make_way(portal)
        kind = statement.classification.kind if statement.classification is not None else None
        if statement.empty:
            client.outbox.add(messages.NO_DATA * describe + messages.EMPTY_QUERY)
            portal.finished = True
        elif kind in CONTROL:
            await self._control(portal, describe)
        elif statement.command is not None and await self._command(portal, limit, describe):
            pass
        elif kind is not None and statement.command is None and not client.native():
            refuse_foreign(statement)
            await self._run(portal, limit, describe)
        elif await self._run(portal, limit, describe) and statement.command is not None:
            client.follow(statement.command)

    async def _control(self, portal: Portal, describe: bool) -> None:
        client = self._client
        if describe:
            client.outbox.add(messages.NO_DATA)
        native = self._native(portal, 0, describe=False, sync=False)
        query = client.conversation.submit(Statement(portal.statement.sql, DIALECT, (), native))
        assert portal.statement.classification is not None
        await control(client, query, portal.statement.classification)
        portal.finished = True
        await self._portals.transaction_over()

    async def _command(self, portal: Portal, limit: int, describe: bool) -> bool:
        """Answer a statement about the session, unless its server does."""
        client, statement = self._client, portal.statement
        command = statement.command
        assert command is not None
        assert statement.classification is not None
        if isinstance(command, SetCommand) and command.name.lower() in ("client_encoding", "names"):
            client.apply(command)
        ours = isinstance(command, DeallocateCommand) and command.name in client.prepared
        if client.native() and not ours:
            return False
        if isinstance(command, TypesCommand):
            bound = portal.bound
            (asked,) = BoundParameters(bound.values, bound.formats, PARAMETERS)
            portal.reply = types_reply(asked.value or ())
        else:
            portal.reply = client.run_command(command, statement.classification)
        if describe:
            columns = portal.reply.columns
            self._describer.tell(Described((), columns or None), portal.bound.result_formats)
        self._reply(portal, limit)
        return True

    def _reply(self, portal: Portal, limit: int) -> None:
        reply = portal.reply
        assert reply is not None
        rows = reply.rows[portal.replied : portal.replied + limit] if limit else reply.rows[portal.replied :]
        formats = messages.expand(portal.bound.result_formats, len(reply.columns))
        write_reply_rows(self._client.outbox, rows, formats)
        portal.replied += len(rows)
        if limit and len(rows) == limit:
            self._client.outbox.add(messages.PORTAL_SUSPENDED)
        else:
            portal.finished = True
            self._client.outbox.add(messages.command_complete(reply.tag))

    def _native(self, portal: Portal, limit: int, *, describe: bool, sync: bool) -> ExtendedQuery:
        bound, statement = portal.bound, portal.statement
        return ExtendedQuery(
            statement.sql,
            statement.oids,
            bound.formats,
            bound.values,
            bound.result_formats,
            limit,
            describe,
            sync,
            self._client.upload,
            b"" if describe else statement.told,
        )

    async def _run(self, portal: Portal, limit: int, describe: bool) -> bool:
        """Start the portal's query and write its first rows. False when the server reported an error."""
        client, statement = self._client, portal.statement
        if statement.told and not describe:
            await self._describer.check(statement)
        kind = statement.classification.kind if statement.classification is not None else None
        # A Sync that comes before CopyDone is not the end of the batch.
        sync = client.decoder.peek() == Front.SYNC and kind is not StatementKind.COPY
        if not sync:
            self._unsynced = True
            if client.conversation.transaction is TransactionStatus.IDLE and not client.native():
                await client.conversation.begin_implicit()
        native = portal.native = self._native(portal, limit, describe=describe, sync=sync)
        parameters = BoundParameters(portal.bound.values, portal.bound.formats, statement.parameter_oids())
        query = client.conversation.submit(
            Statement(statement.sql, DIALECT, cast("tuple[Parameter, ...]", parameters), native)
        )
        portal.query = query
        client.query_id = query.id
        timer = client.limit_time(query)
        try:
            return await self._answer(portal, limit, describe)
        except BaseException:
            portal.finished = True
            await query.close()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _answer(self, portal: Portal, limit: int, describe: bool) -> bool:
        client, query = self._client, portal.query
        assert query is not None
        answer = await query.start()
        if isinstance(answer, Frames):
            return await self._relay(portal, answer)
        if isinstance(answer, Done):
            portal.finished = True
            client.outbox.add(messages.NO_DATA * describe)
            client.outbox.add(messages.command_complete(done_tag(answer.tag, answer.rows)))
            return True
        statement = portal.statement
        told = b"" if describe else statement.told
        portal.rows = await open_rows(client, query, answer, portal.bound.result_formats, told)
        if describe:
            client.outbox.add(portal.rows.encoder.description)
            client.prepared.tell(statement, portal.rows.encoder.description)
        await self._send_rows(portal, limit)
        return True

    async def _send_rows(self, portal: Portal, limit: int) -> None:
        rows, client = portal.rows, self._client
        assert rows is not None
        count = await rows.send(client.outbox, limit)
        if not rows.finished:
            client.outbox.add(messages.PORTAL_SUSPENDED)
            return
        portal.finished = True
        classification = portal.statement.classification or client.classify(portal.statement.sql)
        client.outbox.add(messages.command_complete(rows_tag(classification, count)))

    async def _relay(self, portal: Portal, answer: Frames | None) -> bool:
        """Pass frames on until the statement is complete or its row limit is reached."""
        query, native, outbox = portal.query, portal.native, self._client.outbox
        assert query is not None
        assert native is not None
        while (frame := await query.next()) is not None:
            if native.describe and not portal.told:
                portal.told = True
                self._client.prepared.tell(portal.statement, first_description(cast(bytes, frame)))
            outbox.add(cast(bytes, frame))
            outbox.soon()
            if native.max_rows and suspended(cast(bytes, frame)):
                return True
            if outbox.full:
                await outbox.room()
        portal.finished = True
        if answer is not None and answer.failure is not None:
            self._client.failed()
            self._failed = not native.sync
            return False
        return True

    async def _resume(self, portal: Portal, limit: int) -> None:
        client = self._client
        assert portal.query is not None
        client.query_id = portal.query.id
        if portal.held is not None:
            await self._portals.from_memory(portal, limit)
            return
        await self._portals.make_way(portal)
        try:
            if portal.rows is not None:
                await self._send_rows(portal, limit)
            else:
                assert portal.native is not None
                portal.native.max_rows = limit
                portal.native.sync = client.decoder.peek() == Front.SYNC
                self._unsynced = self._unsynced or not portal.native.sync
                await self._relay(portal, None)
        except BaseException:
            portal.finished = True
            await portal.query.close()
            raise

    def _again(self, portal: Portal) -> None:
        """Execute of a portal that has given all it had."""
        classification = portal.statement.classification
        kind = classification.kind if classification is not None else StatementKind.QUERY
        if kind is not StatementKind.QUERY:
            raise PostgresError("this portal cannot be run again", "55000")
        self._client.outbox.add(messages.command_complete("SELECT 0"))
