"""One query: it owns its slot, its deadline and its ending, and is the only writer of its state.

The stages (stages.py) run in order, first as far as they can without waiting (``submit``), then on
(``start``). Whoever ends it first wins: the reader who saw the last batch, an error, a cancel, the deadline.
The order of an ending is fixed: the engine's work stops, then the slot returns, then the record is written.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NoReturn, cast

from queryflux.admission.slots import Slot, Ticket
from queryflux.engines.port import EngineConnection, TransactionStatus
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    AccessDenied,
    CapacityTimeout,
    EngineConnectionLost,
    InternalError,
    NoCapacity,
    QueryAbandoned,
    QueryCancelled,
    QueryEnded,
    QueryFluxError,
    QueryTimedOut,
    QueueFull,
    ShuttingDown,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Claim, Query
from queryflux.pipeline.generation import Cluster, GroupPlan
from queryflux.pipeline.stages import STAGES
from queryflux.pipeline.state import OVER, TRANSITIONS, Event, State, after
from queryflux.results.answer import Answer, Done, Frames
from queryflux.routing.chain import NoGroup, RoutingDenied, RuleFailed
from queryflux.routing.trace import Trace
from queryflux.runtime.clock import Timer
from queryflux.sql.classify import classify
from queryflux.sql.kinds import StatementKind
from queryflux.sql.translate import Translation

if TYPE_CHECKING:
    import pyarrow as pa

    from queryflux.pipeline.conversation import Talk
    from queryflux.pipeline.ending import Written

log = logging.getLogger(__name__)

REASONS: tuple[tuple[type[QueryFluxError], EndReason], ...] = (
    (AccessDenied, EndReason.DENIED),
    (QueueFull, EndReason.QUEUE_FULL),
    (CapacityTimeout, EndReason.CAPACITY_TIMEOUT),
    (NoCapacity, EndReason.NO_CAPACITY),
    (ShuttingDown, EndReason.SHUTDOWN),
    (QueryTimedOut, EndReason.TIMED_OUT),
    (QueryAbandoned, EndReason.ABANDONED),
    (QueryEnded, EndReason.CANCELLED),
)


def reason_of(error: BaseException) -> EndReason:
    """The ending that an error stands for."""
    if isinstance(error, asyncio.CancelledError):
        return EndReason.CLIENT_GONE
    return next((reason for kind, reason in REASONS if isinstance(error, kind)), EndReason.FAILED)


class Run(Query):
    """A query on its way; ``talk`` is the conversation it belongs to."""

    # What most queries never change stands here once, and not in each of them.
    waiting = False
    waited = False
    group = ""
    cluster = ""
    engine_protocol: ClientProtocol | None = None
    state = State.RECEIVED
    admitted_at: float | None = None
    plan: GroupPlan | None = None
    target: Cluster | None = None
    trace: Trace | None = None
    ticket: Ticket | None = None
    slot: Slot | None = None
    unreachable: tuple[str, ...] = ()
    translation: Translation | None = None
    connection: EngineConnection | None = None
    answer: Answer | None = None
    frames: Frames | None = None
    """The answer, if it is relayed."""
    rows: int | None = None
    error: QueryFluxError | None = None
    stage = 0
    ended_at = 0.0
    """By the monotonic clock, as ``received``."""
    reason = EndReason.COMPLETED
    alike: "dict[str, Written] | None" = None
    """By cluster: a query that has been written down and whose record says the same as ours, if we complete,
    but for id, text, times, rows and figures."""
    claim: Claim | None = None
    """That this process answers for it, where others might."""
    forsaken = False
    """Another process answers for it now: it leaves no record here."""
    failure: Exception | None = None
    """Why it ended, and with which error; valid once it has."""
    _pending: Awaitable[None] | None = None
    _timer: Timer | None = None
    _ran_out = False
    """It did; else a time-out is the client's own."""
    _stop: EndReason | None = None
    _closing = False
    _closed: asyncio.Future[None] | None = None
    _stopping: asyncio.Task[None] | None = None

    def __init__(self, talk: "Talk", statement: Statement, query_id: str) -> None:
        self.talk = talk
        self.statement = statement
        self.id = query_id
        self.generation = talk.pipeline.generation
        self.session = session = talk.session
        self.tags = session.tags
        self._clock = clock = talk.pipeline.clock
        self.created_at = clock.now()
        self.received = clock.monotonic()

    @property
    def sql(self) -> str:
        """The statement for the engine."""
        return self.statement.text if self.translation is None else self.translation.sql

    @property
    def stopped(self) -> bool:
        """Somebody has asked for its end."""
        return self._stop is not None

    # The stages.

    def move(self, event: Event) -> None:
        """Take one step of the lifecycle."""
        state = TRANSITIONS.get((self.state, event))
        self.state = state if state is not None else after(self.state, event)

    def advance(self) -> None:
        """Run stages until one has to wait, fails, or all are done. Never raises."""
        try:
            while self.stage < len(STAGES) and self._stop is None:
                stage = STAGES[self.stage]
                self.stage += 1
                pending = stage(self)
                if pending is not None:
                    self._pending = pending
                    return
            self._pending = None
        except QueryFluxError as error:
            self._refused(error)
        except Exception as error:
            self.error = self._internal(error)

    def _refused(self, error: QueryFluxError) -> None:
        """It goes no further; where routing ended it, its trace is what routing found."""
        self.error = error
        if isinstance(error, RoutingDenied | NoGroup | RuleFailed):
            self.trace = error.trace

    async def start(self) -> Answer:
        try:
            while self.error is None and self._pending is not None:
                pending, self._pending = self._pending, None
                await pending
                self.advance()
        except QueryFluxError as error:
            self._refused(error)
        except asyncio.CancelledError:
            await self._shielded_end(EndReason.CLIENT_GONE, None)
            raise
        except Exception as error:
            self.error = self._internal(error)
        answer = self.answer
        if self.error is not None or self._stop is not None:
            if answer is not None and not isinstance(answer, Done):
                await answer.close()  # it was stopped while the engine accepted it: nobody will read this
            await self.fail(self.error or self.ended_error())
        assert answer is not None
        if isinstance(answer, Done):
            self.rows = answer.rows
            self._note_changed_tables()
            await self.end(EndReason.COMPLETED, None)
        elif answer.batches is True:
            self.rows = 0
        else:
            self.frames = answer
        return answer

    def _note_changed_tables(self) -> None:
        kind = classify(self.statement.text, self.statement.dialect).kind
        if kind is StatementKind.DDL and self.target is not None:
            self.talk.pipeline.forget_catalog(self.target.engine)

    async def next(self) -> "pa.RecordBatch | object | None":
        answer = self.answer
        if self.state is State.ENDED or answer is None or isinstance(answer, Done):
            await self._after_the_end()
            return None
        try:
            part = await answer.next()
        except asyncio.CancelledError:
            await self._shielded_end(EndReason.CLIENT_GONE, None)
            raise
        except QueryFluxError as error:
            await self.fail(error)
        except Exception as error:
            await self.fail(self._internal(error))
        if part is not None:
            if self.frames is None:
                self.rows = cast(int, self.rows) + cast("pa.RecordBatch", part).num_rows
            return part
        if self._stop is not None:
            await self.fail(self.ended_error())
        failure = None
        if self.frames is not None:
            self.rows, failure = self.frames.rows, self.frames.failure
        await self.end(EndReason.COMPLETED if failure is None else EndReason.FAILED, failure)
        return None

    def take(self) -> object | None:
        frames = self.frames
        if frames is None or self.state is not State.STREAMING or self._stop is not None:
            return None
        return frames.take()

    def finish(self) -> bool:
        frames = self.frames
        if self.state is not State.STREAMING or self._stop is not None:
            return self.state is State.ENDED and self._stop is None and not self._closing
        if frames is None or not frames.complete or (self.slot is not None and self.slot.congested):
            return False
        self.state = OVER
        if self._timer is not None:
            self._timer.cancel()
        failure = frames.failure
        if failure is not None:
            self.failure, self.reason = failure, EndReason.FAILED
        self.rows = frames.rows
        self._give_back()
        self.talk.ended(self)
        self._remember()
        return True

    async def _after_the_end(self) -> None:
        """There is no more; a query that was stopped says so."""
        if self._stop is not None:
            await self._wait_closed()
            raise self.ended_error()

    # The endings.

    async def fail(self, error: QueryFluxError) -> NoReturn:
        """End with ``error`` and raise it; or what stopped it, when that is why the engine complained."""
        if self._stop is not None:
            error = self.ended_error()
        await self.end(self._stop or reason_of(error), error)
        raise error

    def ended_error(self) -> QueryFluxError:
        """What a reader of a stopped query is told."""
        reason = self._stop or EndReason.CANCELLED
        if reason is EndReason.TIMED_OUT:
            limit = self.plan.query_timeout_secs if self.plan and self._ran_out else None
            if limit is None:
                return QueryTimedOut(f"query {self.id} ran longer than its client allows")
            return QueryTimedOut(
                f"query {self.id} ran longer than queryTimeoutSecs ({limit:g} s) of group {self.group!r}",
                hint="make it smaller, or ask the operator to raise queryTimeoutSecs",
            )
        if reason is EndReason.ABANDONED:
            return QueryAbandoned(f"query {self.id} was abandoned: its client stopped asking for results")
        if reason is EndReason.SHUTDOWN:
            return ShuttingDown(f"query {self.id} was stopped: this server is shutting down", hint="retry")
        return QueryCancelled(f"query {self.id} was cancelled")

    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        if self.state is not State.ENDED and self._stop is None:
            self._stop = reason
            self._stopping = asyncio.ensure_future(self._stop_and_end(reason))
        await self._shielded_end(reason, self.ended_error())

    async def _stop_and_end(self, reason: EndReason) -> None:
        """Whoever else wants its end waits for this: no slot returns before the engine has stopped."""
        try:
            await self._interrupt()
        except Exception:
            log.exception("query %s: interrupting it at %s failed", self.id, self.cluster)
        await self.end(reason, self.ended_error())

    async def _interrupt(self) -> None:
        """Make whatever ``start`` or ``next`` waits for come back."""
        if self.ticket is not None and self.slot is None:
            self.ticket.refuse(self.ended_error())
            self.ticket.leave()
        if self.connection is not None and self.state in {State.RUNNING, State.STREAMING}:
            await self.connection.cancel()

    async def close(self, reason: EndReason = EndReason.CLIENT_GONE) -> None:
        if self.state is not State.ENDED:
            await self.cancel(reason)
        elif self._closing:
            await self._wait_closed()

    async def forsake(self) -> None:
        self.forsaken = True
        if self.frames is not None:
            self.frames.detach()
        await self.cancel(EndReason.SHUTDOWN)

    async def _shielded_end(self, reason: EndReason, error: Exception | None) -> None:
        """End it even though the task that asks is being cancelled."""
        if self._stop is None:
            self._stop = reason
        ending = self._stopping or asyncio.ensure_future(self.end(self._stop, error))
        await asyncio.shield(ending)

    async def end(self, reason: EndReason, error: Exception | None) -> None:
        """The one ending. A second caller waits for the first."""
        if self.state is State.ENDED:
            await self._wait_closed()
            return
        self.move(Event.END)
        self.reason, self.failure = reason, None if reason is EndReason.COMPLETED else error
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self.claim is not None and not self.forsaken and not await self.claim.end():
                self.forsaken = True
                if self.frames is not None:
                    self.frames.detach()
            await self._stop_engine(reason)
        finally:
            slot = self.slot
            self._give_back()
            self._remember()
            self.talk.ended(self)
            self._closing = False
            if self._closed is not None:
                self._closed.set_result(None)
        if slot is not None and slot.unsettled is not None:
            await asyncio.wait({slot.unsettled})

    async def _wait_closed(self) -> None:
        """Until an ending that is under way is through."""
        if self._closing:
            if self._closed is None:
                self._closed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._closed)

    async def _stop_engine(self, reason: EndReason) -> None:
        try:
            if self._pending is not None:
                cast("Any", self._pending).close()
                self._pending = None
            if self.answer is None or isinstance(self.answer, Done):
                if reason is EndReason.CLIENT_GONE and self.connection is not None:
                    await self.connection.cancel()
                return
            await self.answer.close()
        except QueryFluxError as error:
            log.warning("query %s: stopping it at %s failed: %s", self.id, self.cluster, error)
        except Exception:
            log.exception("query %s: stopping it at %s failed", self.id, self.cluster)

    def _give_back(self) -> None:
        slot = self.slot
        if slot is None:
            if self.ticket is not None:
                self.ticket.leave()
            return
        self.slot = None
        pinned = self.talk.pinned
        connection = self.connection or (pinned.connection if pinned is not None else None)
        if connection is not None and connection.transaction is not TransactionStatus.IDLE:
            self.talk.keep(slot, self)
        elif self.forsaken:
            slot.hand_over()
        else:
            slot.release()
            if pinned is not None:
                self.talk.transaction_gone(self.failure)

    def arm(self, seconds: float | None) -> None:
        """There is room: begin to count towards queryTimeoutSecs."""
        if (on_room := self.on_room) is not None:
            self.on_room = None
            on_room()
        if seconds is not None and self._timer is None:
            self._timer = self._clock.call_later(seconds, self._overdue)

    def _overdue(self) -> None:
        if self.state is not State.ENDED:
            self._ran_out = self._ran_out or self._stop is None
            self.talk.pipeline.tasks.spawn(f"time-out of {self.id}", self.cancel(EndReason.TIMED_OUT))

    def _internal(self, error: Exception) -> QueryFluxError:
        if isinstance(error, ConnectionError | OSError | EOFError):
            log.warning("query %s on %s: %s", self.id, self.cluster or "no cluster", error)
            return EngineConnectionLost(f"the connection to cluster {self.cluster!r} broke: {error}")
        log.error("query %s failed inside QueryFlux", self.id, exc_info=error)
        return InternalError(f"internal error; the operator finds the cause in the log under {self.id}")

    def _remember(self) -> None:
        """Whatever its ending was, it has come: the record can be made."""
        self.ended_at = self._clock.monotonic()
        if not self.forsaken:
            self.talk.pipeline.recorder.write(self)
