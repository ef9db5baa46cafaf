"""Queries that another process began: this one goes on with them, and their record is its own to write.

One that waited is submitted anew under its id. One that runs is attached to where its engine keeps what the
client has not had; it takes a slot without being asked for room, since its engine works on it whoever
answers its client.
"""

from typing import TYPE_CHECKING

from queryflux.engines.port import EngineRequest
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryFluxError, Unavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.shared import SharedQuery, SharedRow
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.run import Run
from queryflux.pipeline.state import Event

if TYPE_CHECKING:
    from queryflux.pipeline.pipeline import QueryPipeline


def take_over(
    pipeline: "QueryPipeline",
    identity: VerifiedIdentity,
    row: SharedRow,
    native: object | None = None,
    had: int = 0,
) -> tuple[Talk, Run]:
    """As Pipeline.take_over."""
    about = row.query
    talk = Talk(pipeline, identity, session_of(about))
    run = Run(talk, Statement(about.text, about.dialect, native=native), about.id)
    run.created_at = about.created_at
    run.received -= max(pipeline.clock.now() - about.created_at, 0.0)
    talk.take_up(run)
    if row.executing:
        _attach(run, row, had)
    else:
        run.waited = True
        run.advance()
    return talk, run


def session_of(about: SharedQuery) -> Session:
    """The surroundings that it was submitted in."""
    return Session(
        ClientProtocol(about.protocol),
        catalog=about.catalog,
        database=about.database,
        tags=about.tags,
        extra=about.extra,
        peer=about.peer,
    )


def _attach(run: Run, row: SharedRow, had: int) -> None:
    """Bring it to where its owner had it; an error is told by ``start``."""
    about, generation = row.query, run.generation
    run.group = about.group
    plan, target = generation.groups.get(about.group), generation.clusters.get(row.cluster)
    if plan is None or target is None:
        run.error = Unavailable(
            f"group {about.group!r} with cluster {row.cluster!r} is not configured any more"
        )
        return
    run.move(Event.ROUTE)
    run.plan, run.target, run.cluster = plan, target, row.cluster
    run.tags = {**plan.default_tags, **about.tags}
    run.engine_protocol = target.engine.native_protocol
    run.waited = about.waited_secs is not None
    run.admitted_at = run.received + (about.waited_secs or 0.0)
    run.move(Event.ADMIT)
    if row.kept is None:
        return
    run.slot = run.talk.pipeline.admission.adopt(plan.admission, target.member, run.id)
    run.move(Event.RUN)
    request = EngineRequest(run.id, run.sql, run.session, run.talk.identity, tags=run.tags)
    try:
        run.connection = run.talk.connection_to(target)
        run.answer = run.connection.resume(request, row.kept.uri, had)
    except QueryFluxError as error:
        run.error = error
        return
    run.move(Event.ANSWER)
    if plan.query_timeout_secs is not None:
        gone = run.talk.pipeline.clock.monotonic() - run.admitted_at
        run.arm(max(plan.query_timeout_secs - gone, 0.0))


async def end_orphan(
    pipeline: "QueryPipeline",
    identity: VerifiedIdentity,
    row: SharedRow,
    reason: EndReason,
    error: QueryFluxError,
) -> None:
    """End a query that nobody answers for, at its engine where that can be, and record it."""
    run = take_over(pipeline, identity, row)[1] if row.executing else _waiting(pipeline, identity, row)
    if run.error is None and run.answer is not None:
        await run.start()
    await run.end(reason, error)
    await run.talk.close()


def _waiting(pipeline: "QueryPipeline", identity: VerifiedIdentity, row: SharedRow) -> Run:
    """One that never came to an engine."""
    about = row.query
    talk = Talk(pipeline, identity, session_of(about))
    run = Run(talk, Statement(about.text, about.dialect), about.id)
    run.created_at, run.group, run.waited = about.created_at, about.group, True
    run.received -= max(pipeline.clock.now() - about.created_at, 0.0)
    talk.take_up(run)
    return run
