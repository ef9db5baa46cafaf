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
from queryflux.model.shared import SharedRow
from queryflux.model.statement import CarriesSql, Session, Statement
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.face import Classification, Conversation, Pipeline, Query
from queryflux.pipeline.generation import Cluster, Generation, GroupPlan, held
from queryflux.pipeline.health import Health
from queryflux.pipeline.lane import Lane
from queryflux.pipeline.run import Run
from queryflux.pipeline.succession import Leaving, Succession
from queryflux.pipeline.takeover import take_over
from queryflux.results.answer import Shape
from queryflux.routing.chain import NoGroup
from queryflux.routing.request import RouteRequest
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.scripts.host import ScriptHost
from queryflux.sql.classify import classify
from queryflux.sql.split import split
from queryflux.sql.translate import TranslationMode

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
        admission: Admission | None = None,
    ) -> None:
        """``admission`` is the fleet's, where there is one; without it slots are this process's own."""
        self.clock = clock
        self.metrics = metrics
        self.recorder = recorder
        self.ids = ids
        self.max_statement_bytes = max_statement_bytes
        self.admission = admission or Admission(clock)
        self.tasks = TaskGroup("pipeline")
        self.health = Health(self.admission, clock, metrics, self.tasks)
        self._succession = Succession(self.admission, self.health, clock, self.tasks)
        self.running: dict[str, Run] = {}
        self.forget_catalog: Callable[[Engine], None] = _nothing_kept
        """Called when a statement has changed tables; the metadata room's own once it has been asked."""
        self._talks: set[Talk] = set()
        self.active: Generation | None = None
        self.lane: Lane | None = None
        """The short way, while new queries are taken."""
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
        """Use a configuration from now on, and watch its clusters. Queries go on where they are; what only
        the one before had is closed after the last of them."""
        before = self.active
        gone = self._succession.follow(before, generation)
        self.recorder.keep_to(generation.redaction)
        self.active = generation
        lane = not self._draining and not generation.chain.asks
        self.lane = Lane(generation, self.max_statement_bytes) if lane else None
        self._succession.leave(self._leaving(cluster) for cluster in gone)
        if before is not None and before.translator is not generation.translator:
            self._succession.leave([self._leaving_translator(before)])
        if before is not None and before.scripts is not None and before.scripts is not generation.scripts:
            self._succession.leave([self._leaving_scripts(before, before.scripts)])

    def _leaving(self, cluster: Cluster) -> Leaving:
        """A cluster's engine, on its way out."""

        def used() -> bool:
            return (
                cluster.holders > 0
                or any(run.target is cluster for run in self.running.values())
                or any(talk.uses(cluster) for talk in self._talks)
            )

        async def close() -> None:
            for talk in self._talks:
                talk.forget(cluster)
            self.forget_catalog(cluster.engine)
            await cluster.engine.close()

        return Leaving(f"the engine that cluster {cluster.member.name} used before", used, close)

    def _leaving_translator(self, generation: Generation) -> Leaving:
        translator = generation.translator  # which generations before that one may have had too

        def used() -> bool:
            return generation.holders > 0 or any(
                run.generation.translator is translator for run in self.running.values()
            )

        return Leaving("the translator of the configuration before", used, translator.close)

    def _leaving_scripts(self, generation: Generation, scripts: ScriptHost) -> Leaving:
        def uses(plan: GroupPlan | None) -> bool:
            return plan is not None and plan.fix_ups is not None and plan.fix_ups.host is scripts

        def used() -> bool:
            return (
                generation.holders > 0
                or any(run.generation.scripts is scripts or uses(run.plan) for run in self.running.values())
                or any(talk.pinned is not None and uses(talk.pinned.plan) for talk in self._talks)
            )

        return Leaving("the scripts of the configuration before", used, scripts.close)

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

    def take_over(
        self, identity: VerifiedIdentity, row: SharedRow, native: object | None, had: int
    ) -> tuple[Conversation, Query]:
        talk, run = take_over(self, identity, row, native, had)
        self._talks.add(talk)
        return talk, run

    def classify(self, text: str, dialect: str) -> Classification:
        return classify(text, dialect)

    def split(self, text: str, dialect: str) -> list[str]:
        return split(text, dialect)

    # What conversations and queries call.

    def settled(self) -> None:
        """A transaction is no more, or a query while new ones are not taken."""
        self._less.set()

    def left(self, talk: Talk) -> None:
        """A client has gone."""
        self._talks.discard(talk)
        self._less.set()

    def lost(self, cluster: Cluster, error: QueryFluxError) -> None:
        """A cluster could not be reached."""
        self.health.lost(cluster, error)

    def likely(self, talk: Talk, text: str = "") -> Cluster | None:
        """Where a statement would most likely go; what scripts said of the one before counts for this one.
        Raises AccessDenied, NotConfigured."""
        generation = self.generation
        session = talk.session
        request = RouteRequest(session.protocol, talk.identity, session, text)
        if generation.chain.asks:
            request.guess(talk.answers or {})
        return self._first(generation, request)

    async def surely(self, talk: Talk, text: str) -> Cluster | None:
        """As ``likely``, with scripts asked about this very statement."""
        generation = self.generation
        if not generation.chain.asks:
            return self.likely(talk, text)
        session = talk.session
        request = RouteRequest(session.protocol, talk.identity, session, text)
        with held(generation):
            await generation.chain.ask(request)
        talk.answers = request.answers
        return self._first(generation, request)

    @staticmethod
    def _first(generation: Generation, request: RouteRequest) -> Cluster | None:
        engine = generation.likely_engine(generation.chain.route(request).group)
        return generation.clusters[engine.name] if engine is not None else None

    async def describe(self, talk: Talk, statement: Statement) -> Shape:
        """The shape of a statement, from the engine it would go to; in its transaction, if one is open."""
        try:
            target = await self._describer(talk, statement.text)
        except AccessDenied as error:
            await self._denied(talk, statement, error)
        if target is None:
            raise EngineUnavailable("no cluster can describe the statement")
        with held(self.generation) as generation, held(target):
            return await self._describe(talk, statement, generation, target)

    async def _sql_for(self, talk: Talk, statement: Statement, generation: Generation, engine: Engine) -> str:
        """The statement as its engine would get it."""
        text, source, target = statement.text, statement.dialect, engine.dialect
        translator = generation.translator
        translation = await translator.translate(text, source, target)
        plan = self._plan_of(talk, generation, text) if generation.fixes else None
        if plan is not None and plan.fix_ups is not None:
            strict = translator.mode is TranslationMode.STRICT
            translation = await plan.fix_ups.fixed(translation, text, source, target, strict=strict)
        return translation.sql

    @staticmethod
    def _plan_of(talk: Talk, generation: Generation, text: str) -> GroupPlan | None:
        if talk.pinned is not None:
            return talk.pinned.plan
        session = talk.session
        request = RouteRequest(session.protocol, talk.identity, session, text)
        request.guess(talk.answers or {})
        return generation.groups.get(generation.chain.route(request).group)

    async def _describe(
        self, talk: Talk, statement: Statement, generation: Generation, target: Cluster
    ) -> Shape:
        engine, sql = target.engine, statement.text
        sql = await self._sql_for(talk, statement, generation, engine)
        native = statement.native if engine.native_protocol is talk.session.protocol else None
        if isinstance(native, CarriesSql) and sql != statement.text:
            native.say(sql)
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

    async def _describer(self, talk: Talk, text: str) -> Cluster | None:
        """The cluster that describes a statement. Raises as ``likely``; TransactionFailed."""
        if talk.pinned is None:
            self.check_ready()
            return await self.surely(talk, text)
        pinned = talk.pinned
        pinned.check()
        with suppress(NoGroup):  # as in the stage ``route``
            await self.surely(talk, text)
        return pinned.target

    async def _denied(self, talk: Talk, statement: Statement, error: AccessDenied) -> NoReturn:
        """Its client will not run what it may not describe: the denial is recorded now."""
        run = Run(talk, statement, self.ids.next())
        run.advance()
        await run.fail(run.error or error)

    # The end of the process.

    def begin_drain(self) -> None:
        """Take no new conversations; the queries that run go on."""
        self._draining = True
        self.lane = None

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
            running = sum(run.admitted_at is not None and not run.waiting for run in left)
            log.warning("ending queries: %d that run, %d that wait", running, len(left) - running)
        await asyncio.gather(*(run.cancel(EndReason.SHUTDOWN) for run in left), return_exceptions=True)
        await asyncio.gather(*(talk.close() for talk in list(self._talks)), return_exceptions=True)
        await self.tasks.close()
        self.recorder.catch_up()
        await self._succession.close()
        if self.active is not None:
            await self.active.close()
