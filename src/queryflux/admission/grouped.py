"""Acquires that wait together go to the store together.

Each cluster has a lane with one call under way. What asks meanwhile is sent by the next call, in order of
arrival, as soon as the reply is in: no timer, and a lone acquire costs the one call. A call is never
cancelled. One that takes longer than ``late_secs`` keeps its lane no more: those in it are told that the
outcome is unknown, and told again what came of it if the reply comes after all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from queryflux.admission.port import CapacityStore, Lease, Wanted
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.metrics import Count, Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

MOST_PER_CALL = 256


class Verdict(Enum):
    """What became of an ask."""

    __hash__ = object.__hash__

    GRANTED = "granted"
    DENIED = "denied"
    FAILED = "failed"
    """The store did not answer: it may be granted or not."""


Answer = Callable[[Verdict, str], object]
"""Takes the verdict, and why the store did not answer (empty when it did)."""


@dataclass(slots=True, eq=False)
class Ask:
    """One acquire; ``answer`` is called when it is decided, and again if that was FAILED for being late."""

    wanted: Wanted
    answer: Answer
    order: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """Asks that travel together."""

    asks: list[Ask]
    timer: Timer | None = None


@dataclass(slots=True, eq=False)
class Lane:
    """The acquires of one cluster."""

    cluster: str
    denied: Count
    degraded: Count
    waiting: deque[Ask] = field(default_factory=deque)
    call: Call | None = None


class GroupedAcquires:
    """Sends acquires to a store, a group at a time."""

    def __init__(
        self,
        store: CapacityStore,
        clock: Clock,
        tasks: TaskGroup,
        metrics: Metrics,
        late_secs: float,
        *,
        own_limits: bool = False,
    ) -> None:
        """``own_limits``: what is not granted for want of an answer goes on without; it is not told as an
        outage here."""
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._late_secs = late_secs
        self._lanes: dict[str, Lane] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._metrics = metrics
        self._failing = False
        self._own_limits = own_limits
        self._failures = metrics.counter("queryflux_coordination_failures_total", operation="acquire")

    def ask(self, cluster: str, wanted: Wanted, answer: Answer, order: int = 0) -> Ask:
        """Ask for a lease, before all that wait to be sent and have a higher ``order``: one that was refused
        and asks again is not overtaken. The answer never comes before this returns."""
        lane = self._lanes.get(cluster) or self._new_lane(cluster)
        ask = Ask(wanted, answer, order)
        place = len(lane.waiting)
        while place and lane.waiting[place - 1].order > order:
            place -= 1
        lane.waiting.insert(place, ask)
        if lane.call is None:
            self._start(lane)
        return ask

    def _new_lane(self, cluster: str) -> Lane:
        lane = self._lanes[cluster] = Lane(
            cluster,
            self._metrics.counter("queryflux_capacity_lease_denied_total", cluster_name=cluster),
            self._metrics.counter("queryflux_capacity_degraded_total", cluster_name=cluster),
        )
        return lane

    def is_asked_for(self, lease: Lease) -> bool:
        """Whether an ask for it waits, or is on its way in a call that is not late."""
        lane = self._lanes.get(lease.cluster)
        if lane is None:
            return False
        sent = lane.call.asks if lane.call is not None else ()
        return any(ask.wanted.query_id == lease.query_id for ask in (*lane.waiting, *sent))

    def withdraw(self, cluster: str, limit: int, reason: str, after: int = -1) -> None:
        """Somebody was refused at ``limit``: those that came later, are not on their way and would ask for no
        more are refused too, for the same reason, so that they do not overtake. ``after``: only those of a
        higher order."""
        lane = self._lanes.get(cluster)
        if lane is None or not lane.waiting:
            return
        refused = [ask for ask in lane.waiting if ask.wanted.limit <= limit and ask.order > after]
        lane.waiting = deque(ask for ask in lane.waiting if ask.wanted.limit > limit or ask.order <= after)
        for ask in refused:
            _answer(ask, Verdict.DENIED, reason)

    def give_up_waiting(self, reason: str) -> None:
        """Nobody answers: what waits to be sent is told so at once."""
        for lane in self._lanes.values():
            waiting, lane.waiting = lane.waiting, deque()
            for ask in waiting:
                _answer(ask, Verdict.FAILED, reason)

    def _start(self, lane: Lane) -> None:
        call = lane.call = Call([])
        task = self._tasks.spawn(f"leases of {lane.cluster}", self._send(lane, call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _send(self, lane: Lane, call: Call) -> None:
        """What waits in the lane, and what came while it was sent, until nothing waits or a call is late."""
        while lane.call is call and lane.waiting:
            waiting = lane.waiting
            call.asks = [waiting.popleft() for _ in range(min(len(waiting), MOST_PER_CALL))]
            call.timer = self._clock.call_later(self._late_secs, partial(self._late, lane, call))
            try:
                verdicts = await self._decide(lane, [ask.wanted for ask in call.asks])
                reason = ""
                self._tell(None)
            except StoreUnavailable as error:
                self._tell(error)
                self._failures.inc()
                lane.degraded.inc(len(call.asks))
                verdicts, reason = [Verdict.FAILED] * len(call.asks), error.message
            except Exception as error:  # else nothing of this cluster would ever be asked for again
                log.exception("asking for leases of cluster %s failed inside QueryFlux", lane.cluster)
                self._failures.inc()
                lane.degraded.inc(len(call.asks))
                reason = f"internal error: {type(error).__name__}"
                verdicts = [Verdict.FAILED] * len(call.asks)
            call.timer.cancel()
            for ask, verdict in zip(call.asks, verdicts, strict=True):
                _answer(ask, verdict, reason)
        if lane.call is call:
            lane.call = None

    def _tell(self, error: StoreUnavailable | None) -> None:
        """Log the first of several failures, and the end of them."""
        if (error is not None) is self._failing or self._own_limits:
            return
        self._failing = error is not None
        if error is not None:
            log.warning(
                "no query is admitted under a limit: %s (%s)", error.message, error.hint or "no details"
            )
        else:
            log.info("the capacity store answers again")

    async def _decide(self, lane: Lane, wanted: list[Wanted]) -> list[Verdict]:
        if len(wanted) == 1:
            answers = [await self._store.try_acquire(lane.cluster, *wanted[0])]
        else:
            answers = await self._store.try_acquire_many(lane.cluster, wanted)
        if denied := answers.count(False):
            lane.denied.inc(denied)
        return [Verdict.GRANTED if granted else Verdict.DENIED for granted in answers]

    def _late(self, lane: Lane, call: Call) -> None:
        """The lane goes on without waiting for this call's reply."""
        self._failures.inc()
        lane.degraded.inc(len(call.asks))
        lane.call = None
        for ask in call.asks:
            _answer(ask, Verdict.FAILED, f"the capacity store gave no answer within {self._late_secs:g} s")
        if lane.waiting and lane.call is None:
            self._start(lane)

    @property
    def under_way(self) -> "set[asyncio.Task[None]]":
        """What sends to the store now, late calls included."""
        return set(self._calls)


def _answer(ask: Ask, verdict: Verdict, reason: str) -> None:
    """A fault of who asked must not keep the others from their answers, nor its cluster from being asked."""
    try:
        ask.answer(verdict, reason)
    except Exception:
        log.exception("what query %s did with its lease failed inside QueryFlux", ask.wanted.query_id)
