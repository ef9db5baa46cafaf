"""The short way of the ordinary query, which does at once what the stages do one by one.

Ordinary is a short read or write outside any transaction, of a client whose group has room and only engines
of the client's own dialect, with bound parameters only if those engines take the client's message as it is.
Whatever is not leaves the lane where that is noticed: ``ordinary`` declines and the stages begin anew, or the
run goes on as any other (``Run``) does.

What does not change between two queries is found once: by session where no routing rule looks at the text,
else by session and text. All of it is forgotten with the generation.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from queryflux.admission.slots import Slot
from queryflux.engines.port import AskedFrames, Capability, EngineRequest, TransactionStatus
from queryflux.metadata.recognise import recognise
from queryflux.model.errors import QueryFluxError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.generation import Generation, GroupPlan
from queryflux.pipeline.run import Run
from queryflux.pipeline.stages import STAGES, refused
from queryflux.pipeline.state import ADMITTED_AT_ONCE, ANSWERED, ASKED, OVER
from queryflux.results.answer import Answer
from queryflux.routing.chain import Route
from queryflux.routing.request import RouteRequest
from queryflux.sql.classify import classify
from queryflux.sql.kinds import StatementKind
from queryflux.sql.translate import needs_translation

if TYPE_CHECKING:
    from queryflux.pipeline.conversation import Talk
    from queryflux.pipeline.ending import Written

LONGEST = 2048
"""Characters of a statement that may be ordinary."""
MOST_WAYS = 256
MOST_TEXTS = 512
"""So much is remembered, at most; then it is found anew."""
ORDINARY = frozenset({StatementKind.QUERY, StatementKind.WRITE})
_QUERY = StatementKind.QUERY
_IDLE = TransactionStatus.IDLE


class Place:
    """Where ordinary queries go."""

    __slots__ = ("alike", "binds", "generation", "group", "plan", "tags", "trace")

    def __init__(self, generation: Generation, route: Route, plan: GroupPlan, session: Session) -> None:
        self.generation = generation
        self.group = route.group
        self.trace = route.trace
        self.plan = plan
        self.alike: dict[str, Written] = {}
        engines = [generation.clusters[member.name].engine for member in plan.admission.members]
        self.binds = all(
            engine.native_protocol is session.protocol and Capability.PARAMETERS in engine.capabilities
            for engine in engines
        )
        """The engines bind parameters that come in the client's own message."""
        self.tags = {**plan.default_tags, **session.tags} if plan.default_tags else session.tags


class Way:
    """What is known of the ordinary queries of one session. ``place`` is theirs where the text has no say."""

    __slots__ = ("asks_engine", "dialect", "identity", "lane", "place", "session")

    def __init__(self, lane: "Lane", identity: VerifiedIdentity, session: Session) -> None:
        self.lane = lane
        self.identity = identity
        self.session = session
        self.dialect = session.protocol.dialect
        self.asks_engine = session.protocol in lane.generation.native_everywhere
        """Questions about the catalog go to the engine, as everything else does."""
        self.place: Place | None = None
        if self.asks_engine and not lane.generation.chain.reads_text:
            self.place = lane.find(self, "")


class Lane:
    """What is known of one generation."""

    def __init__(self, generation: Generation, max_statement_bytes: int) -> None:
        self.generation = generation
        self.longest = min(LONGEST, max_statement_bytes // 4)
        self.known: dict[tuple[Way, str], Place] = {}
        self._ways: dict[int, Way] = {}

    def way(self, identity: VerifiedIdentity, session: Session) -> Way:
        """That of a session, which is told from others by being the same object."""
        way = self._ways.get(id(session))
        if way is None or (way.identity is not identity and way.identity != identity):
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
                self.known.clear()
            way = self._ways[id(session)] = Way(self, identity, session)
        return way

    def learn(self, way: Way, text: str) -> Place | None:
        """Where a text goes that was not met before; None when it is not ordinary."""
        if classify(text, way.dialect).kind not in ORDINARY:
            return None
        if not way.asks_engine and recognise(text, way.dialect, ()) is not None:
            return None
        place = self.find(way, text)
        if place is not None:
            if len(self.known) >= MOST_TEXTS:
                self.known.clear()
            self.known[way, text] = place
        return place

    def find(self, way: Way, text: str) -> Place | None:
        """Where the rules lead; None when they deny, or when some engine there has another dialect, or when
        scripts change the text."""
        generation, session = self.generation, way.session
        try:
            route = generation.chain.route(RouteRequest(session.protocol, way.identity, session, text))
        except QueryFluxError:
            return None  # the stages meet it again, and record it
        plan = generation.groups[route.group]
        if plan.fix_ups is not None:
            return None
        for member in plan.admission.members:
            if needs_translation(way.dialect, generation.clusters[member.name].engine.dialect):
                return None
        return Place(generation, route, plan, session)


def ordinary(talk: "Talk", statement: Statement) -> "OrdinaryRun | None":
    """A run that has been admitted already; None when the statement has to take the stages."""
    place = place_of(talk, statement)
    if place is None:
        return None
    slot = talk.pipeline.admission.take(place.plan.admission)
    if slot is None:
        return None
    return OrdinaryRun(talk, statement, place, slot, talk.pipeline.clock.monotonic())


def asked(talk: "Talk", statement: Statement, answered: Callable[[], object]) -> "OrdinaryRun | None":
    """A run whose engine is at work on it already: it is asked first, and what it is asked is written down
    while it works. None, and nothing was done, when it cannot be asked without waiting."""
    place = place_of(talk, statement)
    if place is None or not place.binds:
        return None
    pipeline = talk.pipeline
    slot = pipeline.admission.take(place.plan.admission)
    if slot is None:
        return None
    received = pipeline.clock.monotonic()
    connection = talk.held_to(place.generation.clusters[slot.member.name])
    frames = connection.ask(statement.native, answered) if connection is not None else None
    if frames is None:
        slot.release()
        return None
    run = OrdinaryRun(talk, statement, place, slot, received)
    run.state = ASKED
    run.connection = connection
    run.answer = run.frames = frames
    if pipeline.recorder.kept and not pipeline.running:
        pipeline.recorder.catch_up()  # nobody waits for us meanwhile
    return run


def place_of(talk: "Talk", statement: Statement) -> Place | None:
    """Where it goes if it is ordinary, and there is room; None when it has to take the stages."""
    lane, way, text = talk.pipeline.lane, talk.way, statement.text
    if lane is None or talk.pinned is not None or talk.begun is not None or talk.implicit:
        return None
    if way is None or way.lane is not lane or way.session is not talk.session:
        way = talk.way = lane.way(talk.identity, talk.session)
    if statement.dialect != way.dialect or len(text) > lane.longest:
        return None
    place = way.place
    if place is None:
        place = lane.known.get((way, text)) or lane.learn(way, text)
        if place is None:
            return None
    else:
        kind = classify(text, way.dialect).kind
        if kind is not _QUERY and kind not in ORDINARY:
            return None
    if (statement.native is None or not place.binds) and statement.parameters:
        return None
    return place


class OrdinaryRun(Run):
    """A query that the lane has admitted: routed, with a slot, and nothing to translate."""

    state = ADMITTED_AT_ONCE
    stage = len(STAGES)

    def __init__(self, talk: "Talk", statement: Statement, place: Place, slot: Slot, received: float) -> None:
        pipeline = talk.pipeline
        self.talk = talk
        self.statement = statement
        self.session = talk.session
        self.generation = place.generation
        self.group = place.group
        self.plan = plan = place.plan
        self.tags = place.tags
        self.trace = place.trace
        self.alike = place.alike
        self.slot = slot
        self.cluster = name = slot.member.name
        self.target = target = place.generation.clusters[name]
        self.engine_protocol = target.engine.native_protocol
        self._clock = clock = pipeline.clock
        self.created_at = now = clock.now()
        self.id = pipeline.ids.at(now)
        self.received = self.admitted_at = received
        if plan.query_timeout_secs is not None:
            self.arm(plan.query_timeout_secs)

    async def start(self) -> Answer:
        if self._stop is not None:
            return await super().start()
        answer: Answer
        try:
            asked = self.frames
            if asked is None:
                answer = await self._execute()
            else:
                assert isinstance(asked, AskedFrames)
                await asked.begin()
                answer = asked
        except (Exception, asyncio.CancelledError) as error:
            self._pending = refused(self, error)
            return await super().start()
        self.answer = answer
        if self._stop is None:
            self.state = ANSWERED
            if answer.batches is False:
                self.frames = answer
                return answer
        return await super().start()

    async def _execute(self) -> Answer:
        talk, statement, session, target = self.talk, self.statement, self.session, self.target
        assert target is not None
        recorder = talk.pipeline.recorder
        if recorder.kept:
            recorder.soon()
        self.state = ASKED
        connection = self.connection = talk.connection_to(target)
        native = statement.native if self.engine_protocol is session.protocol else None
        return await connection.execute(
            EngineRequest(self.id, statement.text, session, talk.identity, (), native, self.tags)
        )

    def finish(self) -> bool:
        frames, talk, connection, slot = self.frames, self.talk, self.connection, self.slot
        if (
            slot is None  # it is over
            or self._stop is not None
            or frames is None
            or not frames.complete
            or frames.failure is not None
            or talk.pinned is not None
            or connection is None
            or connection.transaction is not _IDLE
        ):
            return super().finish()
        self.state = OVER
        if self._timer is not None:
            self._timer.cancel()
        self.rows = frames.rows
        self.slot = None
        slot.release()
        talk.ended(self)
        self._remember()
        return True

    def _remember(self) -> None:
        self.ended_at = self._clock.monotonic()
        if not self.forsaken:
            self.talk.pipeline.recorder.keep(self)
