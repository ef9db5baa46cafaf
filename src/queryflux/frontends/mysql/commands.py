"""The commands of a client that has logged in, each with its answer."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from queryflux.frontends.mysql.answers import Question
from queryflux.frontends.mysql.exchange import Exchange
from queryflux.frontends.mysql.expressions import placeholders
from queryflux.frontends.mysql.local import read_local
from queryflux.frontends.mysql.prepared import PreparedStatements
from queryflux.frontends.mysql.session import ClientSession
from queryflux.frontends.mysql.statements import StatementRunner
from queryflux.frontends.mysql.transactions import DIALECT
from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Capability, Conversation, StatementKind
from queryflux.wire.mysql import replies
from queryflux.wire.mysql.commands import name_of, number_of, read_long_data, text_of
from queryflux.wire.mysql.constants import BINARY, Command
from queryflux.wire.mysql.constants import Capability as ClientCapability
from queryflux.wire.mysql.errors import SYNTAX, UNKNOWN_COMMAND, ServerError
from queryflux.wire.mysql.replies import Column

if TYPE_CHECKING:
    from queryflux.frontends.mysql.door import MysqlDoor

_MULTI_STATEMENTS_ON = 0
_DESCRIBED = frozenset(
    {StatementKind.QUERY, StatementKind.SHOW, StatementKind.DESCRIBE, StatementKind.EXPLAIN}
)
_PLAIN_FAULTS = frozenset(
    {
        EngineErrorKind.SYNTAX,
        EngineErrorKind.TABLE_NOT_FOUND,
        EngineErrorKind.COLUMN_NOT_FOUND,
        EngineErrorKind.FUNCTION_NOT_FOUND,
        EngineErrorKind.SCHEMA_NOT_FOUND,
    }
)
"""What a client is told when it prepares; other errors may go away with the parameters' values."""


class CommandRunner:
    """Answers commands of one client, whose session and conversation it owns."""

    def __init__(
        self,
        door: "MysqlDoor",
        exchange: Exchange,
        session: ClientSession,
        conversation: Conversation,
        capabilities: ClientCapability,
    ) -> None:
        self.session = session
        self.statements = StatementRunner(door, exchange, session, conversation, capabilities)
        self._door = door
        self._exchange = exchange
        self._deprecate_eof = bool(capabilities & ClientCapability.DEPRECATE_EOF)
        self._several = bool(capabilities & ClientCapability.MULTI_STATEMENTS)
        self._prepared = PreparedStatements(door.pipeline.max_statement_bytes)
        self._handlers: dict[int, Callable[[bytes], Awaitable[None]]] = {
            Command.QUERY: self._query,
            Command.PING: self._ping,
            Command.INIT_DB: self._init_db,
            Command.FIELD_LIST: self._field_list,
            Command.STATISTICS: self._statistics,
            Command.SET_OPTION: self._set_option,
            Command.RESET_CONNECTION: self._reset,
            Command.PROCESS_KILL: self._kill,
            Command.STMT_PREPARE: self._prepare,
            Command.STMT_EXECUTE: self._execute,
            Command.STMT_SEND_LONG_DATA: self._long_data,
            Command.STMT_CLOSE: self._close_statement,
            Command.STMT_RESET: self._reset_statement,
        }

    @property
    def conversation(self) -> Conversation:
        """The client's conversation with the pipeline."""
        return self.statements.conversation

    async def run(self, command: int, payload: bytes) -> None:
        """Queue the answer to a command. Raises QueryFluxError, which is then the answer; ConnectionError."""
        handler = self._handlers.get(command)
        if handler is None:
            raise ServerError(UNKNOWN_COMMAND, f"{name_of(command)} is not supported")
        await handler(payload)

    def failed(self, error: QueryFluxError) -> None:
        """Queue the error that ends a command."""
        self.session.error = self._exchange.add_error(error)

    async def close(self) -> None:
        """The client has gone, or is somebody else now."""
        self._prepared.clear()
        await self.conversation.close()

    async def _query(self, payload: bytes) -> None:
        text = text_of(payload)
        if ";" not in text:
            await self.statements.run(text)
            return
        parts = self._door.pipeline.split(text, DIALECT) or [""]
        if len(parts) > 1 and not self._several:
            raise ServerError(
                SYNTAX,
                f"You have an error in your SQL syntax near '{parts[1][:80]}': one statement at a time",
                hint="ask for CLIENT_MULTI_STATEMENTS when connecting to send several",
            )
        for part in parts[:-1]:
            await self.statements.run(part, more=True)
        await self.statements.run(parts[-1])

    async def _ping(self, payload: bytes) -> None:
        self.statements.ok()

    async def _init_db(self, payload: bytes) -> None:
        await self.statements.use(text_of(payload))

    async def _field_list(self, payload: bytes) -> None:
        """Deprecated since MySQL 5.7.11; clients use SHOW COLUMNS, and take an empty list well."""
        self.statements.writer.end(self.statements.status())

    async def _statistics(self, payload: bytes) -> None:
        status = self._door.status()
        self._exchange.add(
            f"Uptime: {status['Uptime']}  Threads: {status['Threads_connected']}  "
            f"Questions: {status['Questions']}  Slow queries: 0".encode()
        )

    async def _set_option(self, payload: bytes) -> None:
        option = number_of(payload, "option", 2)
        self._several = option == _MULTI_STATEMENTS_ON
        self.statements.writer.end(self.statements.status())

    async def _reset(self, payload: bytes) -> None:
        self._prepared.clear()
        await self.conversation.close()
        self.session.reset()
        surroundings = self.session.surroundings()
        self.statements.converse(self._door.pipeline.converse(self.session.identity, surroundings))
        self.statements.ok()

    async def _kill(self, payload: bytes) -> None:
        await self.statements.kill(number_of(payload, "kill"), query_only=False)
        self.statements.ok()

    # Prepared statements.

    async def _prepare(self, payload: bytes) -> None:
        text = text_of(payload)
        parameters = await self._door.threads.read(placeholders, text)
        statement = self._prepared.prepare(text, parameters)
        try:
            columns = await self._described(statement.text)
        except QueryFluxError:
            self._prepared.close(statement.number)
            raise
        marks = [Column("?", collation=BINARY, length=0)] * parameters
        reply = [replies.prepared(statement.number, len(columns), parameters)]
        for definitions in (marks, columns):
            reply += map(replies.column_definition, definitions)
            if definitions and not self._deprecate_eof:
                reply.append(replies.eof(self.statements.status()))
        self._exchange.add(*reply)

    async def _described(self, text: str) -> list[Column]:
        """Result columns, as far as they can be known without running it: none are no promise that there
        will be none, since every execution sends its own."""
        pipeline, conversation = self._door.pipeline, self.conversation
        kind = pipeline.classify(text, DIALECT).kind
        if kind not in _DESCRIBED:
            return []
        local = read_local(text, kind)
        if isinstance(local, Question):
            return self.statements.local_table(local).columns
        if not conversation.can(Capability.DESCRIBE):
            return []
        try:
            shape = await conversation.describe(Statement(text, DIALECT))
        except QueryFluxError as error:
            if isinstance(error, EngineError) and error.kind in _PLAIN_FAULTS:
                raise
            return []
        if shape.schema is None:
            return []
        from queryflux.wire.mysql.columns import column_of

        return [column_of(field) for field in shape.schema]

    async def _execute(self, payload: bytes) -> None:
        statement, parameters = self._prepared.execution(payload)
        await self.statements.run(statement.text, parameters, binary=True)

    async def _long_data(self, payload: bytes) -> None:
        self._prepared.append(read_long_data(payload))

    async def _close_statement(self, payload: bytes) -> None:
        self._prepared.close(number_of(payload, "closing of a statement"))

    async def _reset_statement(self, payload: bytes) -> None:
        self._prepared.reset(number_of(payload, "reset of a statement"))
        self.statements.ok()
