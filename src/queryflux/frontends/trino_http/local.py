"""Statements about the session that need no engine: answered here, so that they work whatever engine the
next statement goes to.

A Trino engine checks session properties and schemas itself: SET SESSION, RESET SESSION, USE and DESCRIBE
INPUT or OUTPUT are left to it. Prepared statements and transactions are ours everywhere: a statement that is
executed is routed, translated and remembered by its own text, with its values in the place of ``?``.
"""

from dataclasses import dataclass

import msgspec

from queryflux.frontends.trino_http.errors import TrinoError
from queryflux.frontends.trino_http.limits import check as check_limit
from queryflux.frontends.trino_http.registry import Registry, Transaction
from queryflux.frontends.trino_http.replies import PROCESS
from queryflux.model.errors import EngineError, NotSupported, QueryFluxError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.face import Conversation, Pipeline, StatementKind
from queryflux.results.answer import Shape
from queryflux.wire.trino import headers as names
from queryflux.wire.trino.documents import Update
from queryflux.wire.trino.statements import (
    Deallocate,
    DescribePrepared,
    Execute,
    Prepare,
    ResetSession,
    SessionStatement,
    SetSession,
    Use,
    parse,
    placeholders,
    substitute,
)

DIALECT = ClientProtocol.TRINO_HTTP.dialect
OURS = frozenset(
    {
        StatementKind.SET,
        StatementKind.RESET,
        StatementKind.USE,
        StatementKind.PREPARE,
        StatementKind.EXECUTE,
        StatementKind.DEALLOCATE,
        StatementKind.DESCRIBE,
        StatementKind.BEGIN,
        StatementKind.COMMIT,
        StatementKind.ROLLBACK,
    }
)
_INVALID_PARAMETERS = "INVALID_PARAMETER_USAGE"
_TRINO_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double",
    "numeric": "decimal",
    "text": "varchar",
    "bytea": "varbinary",
    "timestamptz": "timestamp with time zone",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement and who asks it in which surroundings. ``prepared`` is the X-Trino-Prepared-Statement
    header, ``transaction`` the client's open one."""

    text: str
    identity: VerifiedIdentity
    session: Session
    prepared: str = ""
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was answered here: an update, rows or an error, and headers that change the client's session."""

    update: Update | None = None
    error: QueryFluxError | None = None
    columns: bytes | None = None
    rows: tuple[bytes, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Instead:
    """What an engine is to be asked in place of the client's text. ``prepared`` goes along for a coordinator
    that has to know the prepared statement."""

    text: str
    prepared: str = ""


class Local:
    """Answers the statements of one door."""

    def __init__(self, pipeline: Pipeline, registry: Registry) -> None:
        self._pipeline = pipeline
        self._registry = registry

    async def answer(self, asked: Asked, kind: StatementKind) -> Outcome | Instead:
        """The outcome of a statement of one of the kinds OURS, or what an engine is to be asked. Raises
        QueryFluxError."""
        if kind is StatementKind.BEGIN:
            return await self._begin(asked)
        if kind in (StatementKind.COMMIT, StatementKind.ROLLBACK):
            return await self._finish(asked, kind)
        statement = parse(asked.text)
        if statement is None:
            return Instead(asked.text)
        if isinstance(statement, Prepare):
            added = names.pair(statement.name, statement.statement)
            return Outcome(Update("PREPARE"), headers=((names.ADDED_PREPARE, added),))
        if isinstance(statement, Deallocate):
            _prepared(asked, statement.name)
            removed = names.quoted(statement.name)
            return Outcome(Update("DEALLOCATE"), headers=((names.DEALLOCATED_PREPARE, removed),))
        if isinstance(statement, Execute):
            return Instead(_executed(asked, statement))
        return await self._of_session(asked, statement)

    async def _of_session(self, asked: Asked, statement: SessionStatement) -> Outcome | Instead:
        ours = isinstance(statement, SetSession | ResetSession) and statement.name in names.TAG_PROPERTIES
        if not ours and await self._speaks_trino(asked):
            prepared = ""
            if isinstance(statement, DescribePrepared):
                prepared = names.pair(statement.name, _prepared(asked, statement.name))
            return Instead(asked.text, prepared)
        if isinstance(statement, SetSession):
            check_limit(statement.name, statement.value)
            changed = names.pair(statement.name, statement.value)
            return Outcome(Update(statement.kind), headers=((names.SET_SESSION, changed),))
        if isinstance(statement, ResetSession):
            return Outcome(Update("RESET SESSION"), headers=((names.CLEAR_SESSION, statement.name),))
        if isinstance(statement, Use):
            changes = [(names.SET_SCHEMA, statement.schema)]
            if statement.catalog is not None:
                changes.insert(0, (names.SET_CATALOG, statement.catalog))
            return Outcome(Update("USE"), headers=tuple(changes))
        assert isinstance(statement, DescribePrepared)
        return await self._describe(asked, statement)

    async def _speaks_trino(self, asked: Asked) -> bool:
        conversation = self._conversation(asked)
        try:
            return conversation.speaks() is ClientProtocol.TRINO_HTTP
        finally:
            await self._leave(asked, conversation)

    def _conversation(self, asked: Asked) -> Conversation:
        if asked.transaction is not None:
            asked.transaction.conversation.session = asked.session
            return asked.transaction.conversation
        return self._pipeline.converse(asked.identity, asked.session)

    async def _leave(self, asked: Asked, conversation: Conversation) -> None:
        if asked.transaction is None:
            await conversation.close()

    # Transactions.

    async def _begin(self, asked: Asked) -> Outcome:
        if asked.transaction is not None:
            raise NotSupported("Nested transactions not supported")
        conversation = self._pipeline.converse(asked.identity, asked.session)
        try:
            await self._run(conversation, asked.text)
        except BaseException:
            await conversation.close()
            raise
        transaction = self._registry.begin_transaction(conversation, asked.identity)
        started = ((names.STARTED_TRANSACTION_ID, transaction.id), (PROCESS, self._registry.tag))
        return Outcome(Update("START TRANSACTION"), headers=started)

    async def _finish(self, asked: Asked, kind: StatementKind) -> Outcome:
        transaction = asked.transaction
        if transaction is None:
            raise TrinoError("NOT_IN_TRANSACTION", "No transaction in progress")
        aborted = not self._registry.is_open(transaction)
        transaction.conversation.session = asked.session
        cleared = ((names.CLEAR_TRANSACTION_ID, "true"),)
        try:
            await self._run(transaction.conversation, asked.text)
        except QueryFluxError as error:
            return Outcome(error=error, headers=cleared)
        finally:
            self._registry.end_transaction(transaction)
        if aborted and kind is StatementKind.COMMIT:
            told = "Current transaction has already been aborted; it was rolled back"
            return Outcome(error=TrinoError("TRANSACTION_ALREADY_ABORTED", told), headers=cleared)
        return Outcome(Update(kind.name), headers=cleared)

    async def _run(self, conversation: Conversation, text: str) -> None:
        query = conversation.submit(Statement(text, DIALECT))
        try:
            await query.start()
        finally:
            await query.close()

    # Prepared statements.

    async def _describe(self, asked: Asked, statement: DescribePrepared) -> Outcome:
        text = _prepared(asked, statement.name)
        conversation = self._conversation(asked)
        try:
            if statement.output:
                return _output(await self._shape(conversation, text))
            return _input(await self._parameters(conversation, text))
        finally:
            await self._leave(asked, conversation)

    async def _shape(self, conversation: Conversation, text: str) -> Shape:
        try:
            return await conversation.describe(Statement(text, DIALECT))
        except (EngineError, NotSupported):
            places = placeholders(text)
            if not places:
                raise
            nulls = substitute(text, ("NULL",) * len(places))
            return await conversation.describe(Statement(nulls, DIALECT))

    async def _parameters(self, conversation: Conversation, text: str) -> list[str]:
        """A type for each ``?``; ``unknown`` where the engine cannot tell."""
        count = len(placeholders(text))
        if not count:
            return []
        try:
            shape = await conversation.describe(Statement(text, DIALECT))
        except (EngineError, NotSupported):
            return ["unknown"] * count
        told = [_TRINO_NAMES.get(name, name) or "unknown" for name in shape.parameter_types]
        return (told + ["unknown"] * count)[:count]


def _prepared(asked: Asked, name: str) -> str:
    known = names.pairs(asked.prepared)
    text = known.get(names.quoted(name), known.get(name))
    if text is None:
        raise TrinoError("NOT_FOUND", f"Prepared statement not found: {name}")
    return text


def _executed(asked: Asked, statement: Execute) -> str:
    text = statement.statement
    if text is None:
        assert statement.name is not None
        text = _prepared(asked, statement.name)
    try:
        return substitute(text, statement.arguments)
    except QueryFluxError as error:
        raise TrinoError(_INVALID_PARAMETERS, error.message) from None


def _rows(columns: tuple[tuple[str, str], ...], rows: list[list[object]]) -> Outcome:
    described = [
        {"name": name, "type": kind, "typeSignature": {"rawType": kind, "arguments": _arguments(kind)}}
        for name, kind in columns
    ]
    return Outcome(
        columns=msgspec.json.encode(described), rows=tuple(msgspec.json.encode(row) for row in rows)
    )


def _arguments(kind: str) -> list[dict[str, object]]:
    return [{"kind": "LONG", "value": 2147483647}] if kind == "varchar" else []


def _input(types: list[str]) -> Outcome:
    columns = (("Position", "integer"), ("Type", "varchar"))
    return _rows(columns, [[position, kind] for position, kind in enumerate(types)])


def _output(shape: Shape) -> Outcome:
    columns = (
        ("Column Name", "varchar"),
        ("Catalog", "varchar"),
        ("Schema", "varchar"),
        ("Table", "varchar"),
        ("Type", "varchar"),
        ("Type Size", "integer"),
        ("Aliased", "boolean"),
    )
    if shape.schema is None:
        return _rows(columns, [])
    from queryflux.wire.trino.types import trino_type

    return _rows(columns, [[f.name, "", "", "", trino_type(f.type)[0], 0, False] for f in shape.schema])
