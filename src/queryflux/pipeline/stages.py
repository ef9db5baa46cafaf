"""The order of a query, as one tuple. A stage does its work at once and returns None, or returns what to
await.

Adding a stage to the path of a query means adding a function here and its name to STAGES, and nothing else.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from queryflux.admission.slots import Slot
from queryflux.engines.port import Capability, EngineRequest
from queryflux.model.errors import EngineUnavailable, NotSupported, StatementTooLarge, Unavailable
from queryflux.model.statement import CarriesSql, Parameter
from queryflux.pipeline.generation import Cluster, GroupPlan
from queryflux.pipeline.state import Event
from queryflux.routing.chain import NoGroup
from queryflux.routing.request import RouteRequest
from queryflux.sql.bind import bind
from queryflux.sql.classify import classify
from queryflux.sql.translate import TranslationMode, needs_translation

if TYPE_CHECKING:
    from queryflux.pipeline.run import Run

Stage = Callable[["Run"], Awaitable[None] | None]


def accept(run: "Run") -> None:
    """Refuse what comes too late or is too large, before anything looks at it. A transaction may finish."""
    if run.talk.pinned is None:
        run.talk.pipeline.check_ready()
    limit = run.talk.pipeline.max_statement_bytes
    text = run.statement.text
    if len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit):
        raise StatementTooLarge(
            f"the statement is larger than maxStatementBytes ({limit} bytes)",
            hint="send it in parts, or ask the operator to raise queryflux.maxStatementBytes",
        )


def route(run: "Run") -> Awaitable[None] | None:
    """The group: the one of the open transaction, else what the rules say. What they deny is denied in a
    transaction too."""
    session = run.session
    request = RouteRequest(session.protocol, run.talk.identity, session, run.statement.text, run.id)
    if run.generation.chain.asks:
        return _ask_and_route(run, request)
    _route(run, request)
    return None


async def _ask_and_route(run: "Run", request: RouteRequest) -> None:
    await run.generation.chain.ask(request)
    run.talk.answers = request.answers
    _check_stopped(run)
    _route(run, request)


def _route(run: "Run", request: RouteRequest) -> None:
    pinned = run.talk.pinned
    if pinned is not None:
        run.group, run.target, run.trace = pinned.group, pinned.target, pinned.trace
        with suppress(NoGroup):  # where a rule leads does not matter any more, that it denies does
            run.generation.chain.route(request)
    else:
        routed = run.generation.chain.route(request)
        run.group, run.trace = routed.group, routed.trace
    run.plan = pinned.plan if pinned is not None else run.generation.groups[run.group]
    if run.plan.default_tags:
        run.tags = {**run.plan.default_tags, **run.session.tags}
    run.move(Event.ROUTE)


def admit(run: "Run") -> Awaitable[None] | None:
    """A slot on a member; a transaction brings its own."""
    assert run.plan is not None
    pinned = run.talk.pinned
    if pinned is not None:
        pinned.check()
        _admitted(run, pinned.take(), pinned.target)
        return None
    run.ticket = run.talk.pipeline.admission.enter(run.plan.admission, run.unreachable, run.id)
    if run.ticket.slot is not None:
        slot = run.ticket.slot
        _admitted(run, slot, run.generation.clusters[slot.member.name])
        return None
    run.waiting = run.waited = True
    run.move(Event.QUEUE)
    likely = run.generation.likely_engine(run.group)
    run.engine_protocol = likely.native_protocol if likely else None
    return _wait(run)


async def _wait(run: "Run") -> None:
    assert run.ticket is not None
    while True:
        slot = await run.ticket.wait()
        if run.stopped:
            slot.release()
            raise run.ended_error()
        try:
            plan = _join(run)
        except Exception:
            slot.release()
            raise
        target = run.generation.clusters.get(slot.member.name)
        if target is not None:
            _admitted(run, slot, target)
            if run.claim is not None:
                await run.claim.dispatch()
            return
        slot.release()  # the cluster was removed since the slot was granted
        run.ticket = run.talk.pipeline.admission.enter(plan.admission, run.unreachable, run.id)


def _join(run: "Run") -> GroupPlan:
    """A query belongs to the configuration that admits it, which is the one in use now. Raises Unavailable
    when its group is no more."""
    run.generation = run.talk.pipeline.generation
    plan = run.generation.groups.get(run.group)
    if plan is None:
        raise Unavailable(f"group {run.group!r} was removed while the query was on its way there")
    run.plan = plan
    return plan


def _admitted(run: "Run", slot: Slot, target: Cluster) -> None:
    run.slot = slot
    run.waiting = False
    run.move(Event.ADMIT)
    run.target = target
    run.cluster = slot.member.name
    run.engine_protocol = run.target.engine.native_protocol
    if run.admitted_at is None:
        run.admitted_at = run.talk.pipeline.clock.monotonic()
    assert run.plan is not None
    run.arm(run.plan.query_timeout_secs)


def translate_sql(run: "Run") -> Awaitable[None] | None:
    """The same question in the engine's dialect; nothing to do when it is the client's."""
    assert run.target is not None
    engine = run.target.engine
    bound = Capability.PARAMETERS not in engine.capabilities and bool(run.statement.parameters)
    assert run.plan is not None
    foreign = needs_translation(run.statement.dialect, engine.dialect)
    if not bound and run.plan.fix_ups is None and not foreign:
        return None
    return _translate(run, bound)


async def _translate(run: "Run", bound: bool) -> None:
    assert run.target is not None
    text, dialect = run.statement.text, run.statement.dialect
    if bound:
        text = bind(text, dialect, tuple(run.statement.parameters))
    target, translator = run.target.engine.dialect, run.generation.translator
    translation = await translator.translate(text, dialect, target)
    assert run.plan is not None
    if run.plan.fix_ups is not None:
        strict = translator.mode is TranslationMode.STRICT
        translation = await run.plan.fix_ups.fixed(
            translation, text, dialect, target, strict=strict, query_id=run.id
        )
    run.translation = translation


def execute(run: "Run") -> Awaitable[None]:
    """Ask the engine."""
    return _execute(run)


async def _execute(run: "Run") -> None:
    assert run.target is not None
    talk = run.talk
    _check_stopped(run)
    connection = run.connection = talk.connection_to(run.target)
    run.move(Event.RUN)
    try:
        await talk.before_statement(run, connection)
        _check_stopped(run)  # a cancel has met the BEGIN at most
        run.answer = await connection.execute(request_for(run))
    except EngineUnavailable as error:
        await _elsewhere(run, error)
        return
    if not run.stopped:
        run.move(Event.ANSWER)


def _check_stopped(run: "Run") -> None:
    """Nothing of a query that was stopped may still reach an engine."""
    if run.stopped:
        raise run.ended_error()


def request_for(run: "Run") -> EngineRequest:
    """What the engine gets. Its client's own message goes along when it speaks the client's protocol."""
    assert run.target is not None
    engine = run.target.engine
    parameters: tuple[Parameter, ...] = ()
    native = run.statement.native if engine.native_protocol is run.session.protocol else None
    if native is None and Capability.PARAMETERS in engine.capabilities:
        parameters = run.statement.parameters
    elif run.translation is not None and isinstance(native, CarriesSql):
        native.say(run.sql)
    return EngineRequest(run.id, run.sql, run.session, run.talk.identity, parameters, native, run.tags)


async def refused(run: "Run", error: BaseException) -> None:
    """What the stage ``execute`` does about an error, for whoever has asked the engine without it."""
    if not isinstance(error, EngineUnavailable):
        raise error
    await _elsewhere(run, error)


async def _elsewhere(run: "Run", error: EngineUnavailable) -> None:
    """Nothing was started: the member is down, and another one may take the query."""
    assert run.target is not None
    run.talk.pipeline.lost(run.target, error)
    if run.talk.pinned is not None or run.stopped:
        raise error
    assert run.slot is not None
    run.unreachable += (run.target.member.name,)
    run.talk.forget(run.target)
    run.slot.release()
    run.slot = None
    run.connection = None
    try:
        _join(run)
        pending = admit(run)
    except Exception:
        raise error from None
    if pending is not None:
        await pending
    again = translate_sql(run)
    if again is not None:
        await again
    await _execute(run)


def refuse_write(run: "Run") -> None:
    """An engine without transactions cannot undo a write, so an open transaction must not contain one."""
    if classify(run.statement.text, run.statement.dialect).writes:
        raise NotSupported(
            f"cluster {run.cluster!r} has no transactions, and this statement writes inside one",
            hint="switch autocommit on, or run the statement outside BEGIN ... COMMIT",
        )


STAGES: tuple[Stage, ...] = (accept, route, admit, translate_sql, execute)
