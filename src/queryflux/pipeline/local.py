"""Statements that no engine has to run: transaction control, and questions about the catalog.

They take no slot and leave no record (docs/history.md).
"""

from typing import TYPE_CHECKING

from queryflux.metadata.recognise import MetadataQuery, recognise
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryCancelled, QueryFluxError
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Query
from queryflux.pipeline.generation import Cluster, held
from queryflux.results.answer import Answer, Shape
from queryflux.sql.kinds import StatementKind

if TYPE_CHECKING:
    import pyarrow as pa

    from queryflux.metadata.answer import Asking
    from queryflux.pipeline.conversation import Talk
    from queryflux.results.held import HeldTable


class Control(Query):
    """BEGIN, COMMIT or ROLLBACK."""

    def __init__(self, talk: "Talk", statement: Statement, kind: StatementKind) -> None:
        self._talk = talk
        self._statement = statement
        self._kind = kind
        self.id = ""
        self.waiting = False
        self.waited = False
        self.engine_protocol = None
        self.group = ""
        self.cluster = ""

    async def start(self) -> Answer:
        if self._kind is StatementKind.BEGIN:
            return await self._talk.begin(self._statement)
        if self._kind is StatementKind.SAVEPOINT:
            return self._talk.savepoint(self._statement)
        return await self._talk.finish(self._statement, self._kind.name)

    async def next(self) -> None:
        return None

    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        """Ending a transaction is not interrupted."""

    async def close(self, reason: EndReason = EndReason.CLIENT_GONE) -> None:
        """Nothing is held."""


class MetadataRun(Query):
    """A question about tables and columns, answered from the engine's own list of them."""

    def __init__(self, talk: "Talk", question: MetadataQuery, target: Cluster, text: str) -> None:
        self._talk = talk
        self._text = text
        self._question = question
        self._target = target
        self._cancelled = False
        self._asking: Asking | None = None
        self._answer: HeldTable | None = None
        self.id = ""
        self.waiting = False
        self.waited = False
        self.engine_protocol = None
        self.group = target.member.name
        self.cluster = target.engine.name

    @classmethod
    def recognised(cls, talk: "Talk", statement: Statement) -> "MetadataRun | None":
        """A run for ``statement`` if it asks about the catalog of an engine that does not speak the client's
        protocol itself."""
        protocol = talk.session.protocol
        generation = talk.pipeline.active
        if generation is None or protocol in generation.native_everywhere:
            return None
        if talk.pinned is not None and talk.speaks() is protocol:
            return None
        question = recognise(statement.text, statement.dialect, statement.parameters)
        if question is None:
            return None
        try:
            likely = talk.pipeline.likely(talk, statement.text)
        except QueryFluxError:
            return None  # the run itself will meet the same error, and record it
        guessed = generation.chain.asks and talk.answers is None and talk.pinned is None
        if likely is None or (likely.engine.native_protocol is talk.session.protocol and not guessed):
            return None
        return cls(talk, question, likely, statement.text)

    async def start(self) -> Answer:
        from queryflux.metadata.answer import forget
        from queryflux.results.held import HeldTable

        self._talk.pipeline.forget_catalog = forget
        await self._decide()
        with held(self._target):
            table = await self._ask().answer()
        if self._cancelled:
            raise QueryCancelled("the metadata query was cancelled")
        self._answer = HeldTable(table)
        return self._answer

    async def _decide(self) -> None:
        """Whose catalog it is, where a script has to be asked. Raises what routing raises."""
        talk = self._talk
        if talk.pipeline.generation.chain.asks and talk.pinned is None:
            self._target = await talk.pipeline.surely(talk, self._text) or self._target
            self.group, self.cluster = self._target.member.name, self._target.engine.name

    def _ask(self) -> "Asking":
        from queryflux.metadata.answer import Asking

        self._asking = Asking(self._question, self._target.engine, self._talk.session, self._talk.identity)
        if self._cancelled:
            self._asking.cancel()
        return self._asking

    async def describe(self) -> Shape:
        """Its columns."""
        await self._decide()
        with held(self._target):
            return await self._ask().shape()

    async def next(self) -> "pa.RecordBatch | None":
        return await self._answer.next() if self._answer is not None else None

    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        self._cancelled = True
        if self._asking is not None:
            self._asking.cancel()

    async def close(self, reason: EndReason = EndReason.CLIENT_GONE) -> None:
        if self._answer is None and self._asking is not None:
            self._asking.cancel()
        self._answer = None
