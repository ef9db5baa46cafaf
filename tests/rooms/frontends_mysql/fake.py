"""A pipeline that runs every statement on a scripted engine, and a door in front of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from queryflux.auth.build import build_authenticator
from queryflux.auth.port import Authenticator
from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.config.listeners import ListenerConfig
from queryflux.engines.port import (
    Capability,
    ConnectionSpec,
    EngineConnection,
    EngineRequest,
    TransactionStatus,
)
from queryflux.frontends.mysql.door import MysqlDoor
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryCancelled, QueryEnded, QueryFluxError, QueryTimedOut
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.secret import Secret
from queryflux.model.shared import SharedRow
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.face import Classification, Conversation, Pipeline, Query, StatementKind
from queryflux.results.answer import Answer, Batches, Done, Shape
from queryflux.sql.classify import classify
from queryflux.sql.split import split
from tests.kit.metrics import NoMetrics
from tests.kit.scripted import ScriptedEngine, Step

CONTROL = {
    StatementKind.BEGIN: "BEGIN",
    StatementKind.COMMIT: "COMMIT",
    StatementKind.ROLLBACK: "ROLLBACK",
}
ENDINGS = {EndReason.TIMED_OUT: QueryTimedOut}


class FakeQuery(Query):
    def __init__(self, talk: "FakeConversation", statement: Statement) -> None:
        self.id = "20260101_000000_00001_fake2"
        self.waiting = False
        self.engine_protocol = None
        self.group = self.cluster = "fake"
        self.ended: EndReason | None = None
        self._talk = talk
        self._statement = statement
        self._answer: Answer | None = None

    async def start(self) -> Answer:
        talk = self._talk
        kind = classify(self._statement.text, "mysql").kind
        sql = CONTROL.get(kind, self._statement.text)
        request = EngineRequest(self.id, sql, talk.session, talk.identity, self._statement.parameters)
        try:
            self._answer = await talk.connection.execute(request)
        except QueryFluxError as error:
            raise self._failed(error) from error
        if isinstance(self._answer, Done):
            self._end(EndReason.COMPLETED)
        return self._answer

    async def next(self) -> Any:
        if not isinstance(self._answer, Batches):
            return None
        try:
            part = await self._answer.next()
        except QueryFluxError as error:
            raise self._failed(error) from error
        if part is None:
            self._end(EndReason.COMPLETED)
        return part

    def _failed(self, error: QueryFluxError) -> QueryFluxError:
        if self.ended is None:
            self._end(EndReason.FAILED)
        if isinstance(error, QueryEnded) and self.ended is not None:
            return ENDINGS.get(self.ended, QueryCancelled)("Query execution was interrupted")
        return error

    def _end(self, reason: EndReason) -> None:
        if self.ended is None:
            self.ended = reason
            self._talk.pipeline.endings.append((self._statement.text, reason))

    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        if self.ended is None:
            self._end(reason)
            await self._talk.connection.cancel()

    async def close(self, reason: EndReason = EndReason.CLIENT_GONE) -> None:
        if self.ended is None:
            self._end(reason)
            if isinstance(self._answer, Batches):
                await self._answer.close()


class FakeConversation(Conversation):
    def __init__(self, pipeline: "FakePipeline", identity: VerifiedIdentity, session: Session) -> None:
        self.pipeline = pipeline
        self.identity = identity
        self.session = session
        self.connection: EngineConnection = pipeline.engine.connect(ConnectionSpec(identity, session))
        self.closed = False

    @property
    def transaction(self) -> TransactionStatus:
        return self.connection.transaction

    def submit(self, statement: Statement) -> Query:
        assert not self.closed
        self.pipeline.statements.append(statement)
        return FakeQuery(self, statement)

    async def describe(self, statement: Statement) -> Shape:
        request = EngineRequest("", statement.text, self.session, self.identity)
        error = self.pipeline.engine.script(request).error
        if error is not None:
            raise error
        return await self.connection.describe(request)

    async def begin_implicit(self) -> None:
        raise AssertionError("MySQL has no such thing")

    async def sync(self, failed: bool = False) -> None:
        raise AssertionError("MySQL has no such thing")

    def can(self, capability: Capability) -> bool:
        return capability in self.pipeline.engine.capabilities

    def speaks(self) -> ClientProtocol | None:
        return self.pipeline.engine.native_protocol

    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        raise AssertionError("the door cancels queries, one by one")

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.pipeline.open -= 1
            await self.connection.close()


class FakePipeline(Pipeline):
    """``endings`` are the texts that ended, and how; ``open`` the conversations that nobody has closed."""

    def __init__(self, engine: ScriptedEngine, max_statement_bytes: int = 1 << 20) -> None:
        self.engine = engine
        self.max_statement_bytes = max_statement_bytes
        self.not_ready: QueryFluxError | None = None
        self.conversations: list[FakeConversation] = []
        self.statements: list[Statement] = []
        self.endings: list[tuple[str, EndReason]] = []
        self.open = 0

    def check_ready(self) -> None:
        if self.not_ready is not None:
            raise self.not_ready

    def converse(self, identity: VerifiedIdentity, session: Session) -> Conversation:
        talk = FakeConversation(self, identity, session)
        self.conversations.append(talk)
        self.open += 1
        return talk

    def take_over(
        self, identity: VerifiedIdentity, row: SharedRow, native: object | None, had: int
    ) -> tuple[Conversation, Query]:
        raise AssertionError("this door shares no queries with other processes")

    def classify(self, text: str, dialect: str) -> Classification:
        return classify(text, dialect)

    def split(self, text: str, dialect: str) -> list[str]:
        return split(text, dialect)

    @property
    def texts(self) -> list[str]:
        return [statement.text for statement in self.statements]


@dataclass
class House:
    """A door, its pipeline and its engine."""

    door: MysqlDoor
    pipeline: FakePipeline
    engine: ScriptedEngine
    steps: dict[str, Step] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return self.door.port


def authenticator(passwords: dict[str, str] | None = None, **settings: Any) -> Authenticator:
    """Provider none, or static with these users."""
    if passwords is None:
        return build_authenticator(AuthConfig(provider="none", **settings))
    users = {name: StaticUser(password=Secret(password)) for name, password in passwords.items()}
    return build_authenticator(
        AuthConfig(provider="static", static_users=StaticUsers(users=users), **settings)
    )


@asynccontextmanager
async def house(
    *,
    auth: Authenticator | None = None,
    steps: dict[str, Step] | None = None,
    script: Callable[[EngineRequest], Step] | None = None,
    max_statement_bytes: int = 1 << 20,
    max_connections: int | None = None,
    **door: Any,
) -> AsyncIterator[House]:
    """A door on a free port. ``steps`` give the answer to each text; others answer one row."""
    known = dict(steps or {})
    engine = ScriptedEngine(script=script or (lambda request: known.get(request.sql, Step())))
    pipeline = FakePipeline(engine, max_statement_bytes)
    chosen = auth or authenticator()
    listener = ListenerConfig(host="127.0.0.1", port=0, max_connections=max_connections)
    tag = door["siblings"].tag if "siblings" in door else "k3f9z"
    made = MysqlDoor(listener, pipeline, lambda: chosen, NoMetrics(), tag, **door)
    await made.start()
    try:
        yield House(made, pipeline, engine, known)
    finally:
        await made.close()
        assert pipeline.open == 0
        assert engine.running == 0
