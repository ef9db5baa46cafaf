"""The pipeline of one process: conversations in, queries through the stages, everything counted and ended."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from queryflux.admission.slots import Admission
from queryflux.engines.port import ConnectionSpec, Engine, EngineRequest
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    AccessDenied,
    EngineUnavailable,
    NotConfigured,
    QueryFluxError,
    ShuttingDown,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import QueryIds
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.face import Classification, Conversation, Pipeline
from queryflux.pipeline.generation import Cluster, Generation
from queryflux.pipeline.health import Health
from queryflux.pipeline.run import Run
from queryflux.pipeline.stages import STAGES, Stage
from queryflux.results.answer import Shape
from queryflux.routing.chain import NoGroup
from queryflux.routing.request import RouteRequest
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.sql.classify import classify
from queryflux.sql.split import split

log = logging.getLogger(__name__)

DEFAULT_MAX_STATEMENT_BYTES = 16 * 1024 * 1024


def _nothing_kept(engine: Engine) -> None:
    """No catalog question was asked yet."""


class QueryPipeline(Pipeline):
    """Everything between the doors and the engines."""

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Metrics,
        recorder: Recorder,
        ids: QueryIds,
        max_statement_bytes: int = DEFAULT_MAX_STATEMENT_BYTES,
    ) -> None:
        self.clock = clock
        self.metrics = metrics
        self.recorder = recorder
        self.ids = ids
        self.max_statement_bytes = max_statement_bytes
        self.admission = Admission(clock)
        self.tasks = TaskGroup("pipeline")
        self.stages: tuple[Stage, ...] = STAGES
        self.health = Health(self.admission, clock, metrics, self.tasks)
        self.running: dict[str, Run] = {}
        self.forget_catalog: Callable[[Engine], None] = _nothing_kept
        """Called when a statement has changed tables; the metadata room's own once it has been asked."""
        self._talks: set[Talk] = set()
        self.active: Generation | None = None
        self._draining = False
        self._less = asyncio.Event()
        """A query or a transaction has ended."""

    # Configuration.

    @property
    def generation(self) -> Generation:
        """The one that new queries start with. Raises NotConfigured."""
        if self.active is None:
            raise NotConfigured("no configuration is active yet", hint="retry in a moment")
        return self.active

    def activate(self, generation: Generation) -> None:
        """Use a configuration from now on, and begin to watch its clusters."""
        self.active = generation
        for cluster in generation.clusters.values():
            self.health.watch(cluster)

    # What doors call.

    def check_ready(self) -> None:
        if self._draining:
            raise ShuttingDown(
                "this server is shutting down", hint="connect again: another one may take over"
            )
        if self.active is None:
            raise NotConfigured("no configuration is active yet", hint="retry in a moment")

    def converse(self, identity: VerifiedIdentity, session: Session) -> Conversation:
        talk = Talk(self, identity, session)
        self._talks.add(talk)
        return talk

    def classify(self, text: str, dialect: str) -> Classification:
        return classify(text, dialect)

    def split(self, text: str, dialect: str) -> list[str]:
        return split(text, dialect)

    # What conversations and queries call.

    def ended(self, run: Run) -> None:
        """A query is no more."""
        self.running.pop(run.id, None)
        if self._draining:
            self._less.set()

    def settled(self) -> None:
        """A transaction is no more."""
        self._less.set()

    def left(self, talk: Talk) -> None:
        """A client has gone."""
        self._talks.discard(talk)
        self._less.set()

    def lost(self, cluster: Cluster, error: QueryFluxError) -> None:
        """A cluster could not be reached."""
        self.health.lost(cluster, error)

    def likely(self, talk: Talk, text: str = "") -> Cluster | None:
        """Where a statement would most likely go. Raises AccessDenied, NotConfigured."""
        generation = self.generation
        session = talk.session
        group = generation.chain.route(RouteRequest(session.protocol, talk.identity, session, text)).group
        engine = generation.likely_engine(group)
        return generation.clusters[engine.name] if engine is not None else None

    async def describe(self, talk: Talk, statement: Statement) -> Shape:
        """The shape of a statement, from the engine it would go to; in its transaction, if one is open."""
        try:
            target = self._describer(talk, statement.text)
        except AccessDenied as error:
            await self._denied(talk, statement, error)
        if target is None:
            raise EngineUnavailable("no cluster can describe the statement")
        engine, sql = target.engine, statement.text
        sql = (await self.generation.translator.translate(sql, statement.dialect, engine.dialect)).sql
        native = statement.native if engine.native_protocol is talk.session.protocol else None
        request = EngineRequest("", sql, talk.session, talk.identity, statement.parameters, native)
        try:
            if not talk.busy:
                return await talk.connection_to(target).describe(request)
            connection = engine.connect(ConnectionSpec(talk.identity, talk.session))
            try:
                return await connection.describe(request)
            finally:
                await connection.close()
        except EngineUnavailable as error:
            self.lost(target, error)
            talk.forget(target)
            raise

    def _describer(self, talk: Talk, text: str) -> Cluster | None:
        """The cluster that describes a statement. Raises as ``likely``; TransactionFailed."""
        if talk.pinned is None:
            self.check_ready()
            return self.likely(talk, text)
        talk.pinned.check()
        with suppress(NoGroup):  # as in the stage ``route``
            self.likely(talk, text)
        return talk.pinned.target

    async def _denied(self, talk: Talk, statement: Statement, error: AccessDenied) -> NoReturn:
        """Its client will not run what it may not describe: the denial is recorded now."""
        run = Run(talk, statement, self.ids.next())
        run.advance()
        await run.fail(run.error or error)

    # The end of the process.

    def begin_drain(self) -> None:
        """Take no new conversations; the queries that run go on."""
        self._draining = True

    async def drain(self, seconds: float) -> bool:
        """Wait until every query and every transaction has ended, at most so long. False when some are
        left."""
        self.begin_drain()
        try:
            async with asyncio.timeout(seconds):
                while self.running or any(talk.holds for talk in self._talks):
                    self._less.clear()
                    await self._less.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End every query that is left, every conversation, every engine."""
        self.begin_drain()
        left = list(self.running.values())
        if left:
            log.warning("ending %d queries that are still running", len(left))
        await asyncio.gather(*(run.cancel(EndReason.SHUTDOWN) for run in left), return_exceptions=True)
        await asyncio.gather(*(talk.close() for talk in list(self._talks)), return_exceptions=True)
        await self.tasks.close()
        if self.active is not None:
            await self.active.close()
