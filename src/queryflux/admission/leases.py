"""The leases of this process: asked for, held, renewed, lost and taken again, given back.

A holding is one query's lease on one cluster. It is asked for in groups (grouped.py), given back in batches
(batched.py) and renewed by a heartbeat that names every lease we believe to hold: one that nobody names runs
out. A lease that the store no longer has is lost; while its query runs it is taken again with the next
renewal, above the cap if need be, because its engine is at work for it whatever the count says.

When the store does not answer, an ask may have been granted or not. Such a holding stays requested: it is
asked for again under the same id, which the store grants without counting twice, or released.

A process that may go on alone then (``own_limits``) admits queries by its own slots. The store is asked until
it answers; leases are taken for what runs, as lost ones are, and limits are shared again.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from queryflux.admission.batched import BatchedReleaseStore
from queryflux.admission.grouped import Ask, GroupedAcquires, Verdict
from queryflux.admission.lifecycle import Event, Holding, State
from queryflux.admission.port import UNLIMITED, CapacityStore, Lease, Wanted
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

MOST_RENEWAL_RETRY_SECS = 5.0
LAST_CALLS_SECS = 5.0
"""How long ``close`` waits for calls that are under way: no grant may arrive after the end, and no release
meet that of everything."""
LAST_RETRY_SECS = 0.2
LAST_TRY_SECS = 2.0
"""What failed after longer than this is not tried again at the end."""
LEAST_PROBE_SECS, MOST_PROBE_SECS = 0.25, 0.5


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the store answers. Times are seconds since the epoch, None before the first call."""

    unavailable: str = ""
    """Why it did not, the last time; empty when it did."""
    since: float | None = None
    """Since when it has been so."""
    asked: float | None = None
    """When it was so last."""


class Leases:
    """Every lease of this process. ``on_freed`` is called with the cluster when places were given back."""

    def __init__(
        self,
        store: CapacityStore,
        clock: Clock,
        metrics: Metrics,
        *,
        renew_secs: float = 60,
        acquire_secs: float = 5,
        own_limits: bool = False,
        chance: Random | None = None,
    ) -> None:
        """``acquire_secs`` is how long a call may keep the next one of its cluster waiting. ``own_limits``:
        while the store does not answer, queries are admitted on this process's limits."""
        self.tasks = TaskGroup("leases")
        self.store = BatchedReleaseStore(store, clock, self.tasks, metrics)
        self.store.on_confirmed = self._confirmed
        self.store.on_given_up = self._given_up
        self.store.on_failed = self._heard
        self._acquires = GroupedAcquires(
            self.store, clock, self.tasks, metrics, acquire_secs, own_limits=own_limits
        )
        self.own_limits = own_limits
        self.alone = False
        """Nobody grants, and queries are admitted on this process's own limits."""
        self._clock = clock
        self._metrics = metrics
        self._renew_secs = renew_secs
        self._chance = chance or Random()
        self._held: dict[Lease, Holding] = {}
        self._releasing: dict[Lease, Holding] = {}
        self._calling: set[asyncio.Future[None]] = set()
        """Renewals, and leases taken again, that are under way."""
        self._used = False
        """This process has asked for a lease, or has taken one over: the store may hold some of it."""
        self._closed = False
        self._failures = metrics.counter("queryflux_coordination_failures_total", operation="renew")
        self._failing = False
        """Renewals fail, and that was told."""
        self.standing = Standing()
        self.lost = 0
        """Leases that ended while their queries ran, since this process began."""
        self.on_freed: Callable[[str], object] = lambda cluster: None

    @property
    def held(self) -> int:
        """Leases that this process believes to hold."""
        return len(self._held) - self.local

    @property
    def local(self) -> int:
        """Queries that run without a lease, admitted while nobody granted."""
        return sum(holding.state is State.LOCAL for holding in self._held.values())

    @property
    def releasing(self) -> int:
        """Leases on their way back."""
        return len(self._releasing)

    def start(self) -> None:
        """Begin to renew."""
        self.tasks.spawn("renewals", self._heartbeat())

    # Asking and giving back.

    def ask(
        self, holding: Holding, limit: int, answer: Callable[[Verdict, str], object], order: int = 0
    ) -> None:
        """Ask for a lease; ``answer`` gets the verdict once, later. ``order``: see GroupedAcquires."""
        holding.move(Event.REQUEST)
        self._used = True
        wanted = Wanted(holding.lease.query_id, limit)
        holding.ask = ask = self._acquires.ask(
            holding.lease.cluster,
            wanted,
            lambda verdict, why: self._answered(holding, ask, verdict, why, answer),
            order,
        )

    def _answered(
        self,
        holding: Holding,
        ask: Ask,
        verdict: Verdict,
        reason: str,
        answer: Callable[[Verdict, str], object],
    ) -> None:
        self._heard(reason)
        if holding.ask is not ask:
            self._late(holding, verdict)
            return
        holding.ask = None
        if verdict is Verdict.GRANTED:
            holding.move(Event.GRANT)
            self._held[holding.lease] = holding
        elif verdict is Verdict.FAILED:
            holding.doubtful = True
            holding.move(Event.FAIL)
        else:
            holding.move(Event.DENY)
        answer(verdict, reason)

    def _heard(self, unavailable: str = "") -> None:
        """The store has answered, or it has not."""
        now, before = self._clock.now(), self.standing
        same = before.since is not None and bool(before.unavailable) is bool(unavailable)
        self.standing = Standing(unavailable, before.since if same else now, now)

    def _late(self, holding: Holding, verdict: Verdict) -> None:
        """What came of a call that was given up. What it granted, or may have, and nobody wants any more goes
        back."""
        if verdict is not Verdict.DENIED:
            self._return_ended((holding,))

    def _give_back(self, lease: Lease) -> None:
        """What was granted to a holding that is over; unless its query has come back, and has the lease or
        asks for it: the store knows one by its id only."""
        if lease not in self._held and not self._acquires.is_asked_for(lease):
            self._send_release(lease)

    def withdraw(self, cluster: str, limit: int, reason: str, after: int = -1) -> None:
        """See GroupedAcquires."""
        self._acquires.withdraw(cluster, limit, reason, after)

    @property
    def congested(self) -> bool:
        """So many releases wait to be sent that whoever gives back has to wait for it."""
        return self.store.full

    def release(self, holding: Holding) -> "asyncio.Task[None] | None":
        """Give it back, whatever it is: held, lost, doubtful, or none at all. Returns before it is done;
        while ``congested``, with what its query is to wait for."""
        unasked = holding.state is State.LOCAL and not holding.doubtful
        holding.move(Event.RELEASE)
        self._held.pop(holding.lease, None)
        if unasked:  # else an outage would leave one release of nothing for every query
            holding.move(Event.CONFIRM)
            return None
        self._releasing[holding.lease] = holding
        return self._send_release(holding.lease)

    def admit_alone(self, holding: Holding, reason: str = "") -> None:
        """It goes on without a lease; ``reason`` says why when that begins now."""
        holding.move(Event.ADMIT)
        self._used = True
        self._held[holding.lease] = holding
        if not self.alone and not self._closed:
            self.alone = True
            log.warning("queries are admitted on the limits of this process alone: %s", reason)
            self.tasks.spawn("own limits", self._until_granted())
            self._acquires.give_up_waiting(reason)

    def adopt(self, holding: Holding) -> None:
        """It is ours, with a query that was taken over."""
        holding.move(Event.ADOPT)
        self._used = True
        self._held[holding.lease] = holding

    def abandon(self, holding: Holding) -> None:
        """It is another process's now, with its query: to give it back is not our business any more."""
        if holding.state is not State.NONE:
            holding.move(Event.ABANDON)
            self._held.pop(holding.lease, None)

    def drop(self, holding: Holding) -> None:
        """Its query asks no more, and no ask is on its way: given back if the store may hold it."""
        if holding.state is not State.NONE or holding.doubtful:
            self.release(holding)

    def _send_release(self, lease: Lease) -> "asyncio.Task[None] | None":
        return None if self._closed else self.store.release(lease)

    def _confirmed(self, leases: Collection[Lease]) -> None:
        if leases:
            self._heard()
        for lease in leases:
            holding = self._releasing.pop(lease, None)
            if holding is not None:
                holding.move(Event.CONFIRM)
        for cluster in dict.fromkeys(lease.cluster for lease in leases):
            self.on_freed(cluster)

    def _given_up(self, leases: Collection[Lease]) -> None:
        for lease in leases:
            holding = self._releasing.pop(lease, None)
            if holding is not None:
                holding.move(Event.ABANDON)

    # Renewals.

    async def _heartbeat(self) -> None:
        while True:
            await self._clock.sleep(self._renew_secs * self._chance.uniform(0.9, 1))
            while not await self._renewed():
                await self._clock.sleep(min(MOST_RENEWAL_RETRY_SECS, self._renew_secs / 4))

    async def _renewed(self) -> bool:
        """As ``renew``; a fault of ours must not be the end of renewals, and so of the leases."""
        try:
            return await self.renew()
        except Exception:
            self._failures.inc()
            log.exception("renewing leases failed inside QueryFlux; trying again")
            return False

    async def renew(self) -> bool:
        """Renew every lease once, and take lost ones again; False when the store did not answer."""
        with self._call():
            return self._closed or await self._renew()

    @contextmanager
    def _call(self) -> Iterator[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calling.add(done)
        try:
            yield
        finally:
            self._calling.discard(done)
            done.set_result(None)

    async def _renew(self) -> bool:
        renewing = [holding for holding in self._held.values() if holding.state is State.HELD]
        if not self._held:
            return True
        for holding in renewing:
            holding.move(Event.RENEW)
        kept: set[str] = set()
        try:
            if renewing:
                kept = await self.store.renew([holding.lease for holding in renewing])
        except StoreUnavailable as error:
            self._not_renewed(f"{len(renewing)} leases could not be renewed", error)
            self._settle(renewing, lambda holding: Event.FAIL)
            self._return_ended(renewing)
            return False
        except BaseException:
            self._settle(renewing, lambda holding: Event.FAIL)
            raise
        self._settle(
            renewing,
            lambda holding: Event.RENEWED if holding.lease.query_id in kept else Event.MISSING,
        )
        self._return_ended(holding for holding in renewing if holding.lease.query_id in kept)
        if renewing:
            self._heard()
        self._tell_lost(holding.lease.cluster for holding in renewing if holding.state is State.LOST)
        if not await self._take_lost_again():
            return False
        if self._failing:
            log.info("leases are renewed again")
        self._failing = False
        return True

    def _return_ended(self, asked: Iterable[Holding]) -> None:
        """A release may have come before what was asked for meanwhile: once more, to be sure."""
        for holding in asked:
            if holding.state in {State.RELEASING, State.RELEASED}:
                self._give_back(holding.lease)

    def _not_renewed(self, what: str, error: StoreUnavailable) -> None:
        """Count it; the first of several is told."""
        self._failures.inc()
        self._heard(error.message)
        if not self._failing:
            log.warning("%s: %s", what, error.message)
        self._failing = True

    def _tell_lost(self, clusters: Iterable[str]) -> None:
        """Of each loss once."""
        for cluster, count in sorted(Counter(clusters).items()):
            log.error("%d leases of cluster %s were lost while their queries run", count, cluster)
            self._metrics.counter("queryflux_capacity_leases_lost_total", cluster_name=cluster).inc(count)
            self.lost += count

    @staticmethod
    def _settle(renewing: list[Holding], outcome: Callable[[Holding], Event]) -> None:
        for holding in renewing:
            if holding.state is State.RENEWING:  # else it was released meanwhile
                holding.move(outcome(holding))

    async def _take_lost_again(self) -> bool:
        try:
            await self._take_again(State.LOST, State.LOCAL)
        except StoreUnavailable as error:
            self._not_renewed("leases that were lost could not be taken again", error)
            return False
        return True

    async def _take_again(self, *states: State, but: Collection[Holding] = ()) -> set[Holding]:
        """Ask for what runs without a lease, above the cap if need be; what was asked for. Raises
        StoreUnavailable."""
        without: defaultdict[str, list[Holding]] = defaultdict(list)
        for holding in self._held.values():
            if holding.state in states and holding not in but:
                without[holding.lease.cluster].append(holding)
        for cluster, holdings in sorted(without.items()):
            if self._closed:
                break
            for holding in holdings:
                holding.doubtful = True
            wanted = [Wanted(holding.lease.query_id, UNLIMITED) for holding in holdings]
            try:
                granted = await self.store.try_acquire_many(cluster, wanted)
            except StoreUnavailable:
                self._return_ended(holdings)
                raise
            for holding, again in zip(holdings, granted, strict=True):
                self._taken_again(holding, again)
        return {holding for holdings in without.values() for holding in holdings}

    def _taken_again(self, holding: Holding, granted: bool) -> None:
        if holding.state in {State.LOST, State.LOCAL}:
            holding.move(Event.GRANT if granted else Event.DENY)
        elif granted:  # its query ended meanwhile, and the release may have come before this
            self._give_back(holding.lease)

    # Alone.

    async def _until_granted(self) -> None:
        """Until the store answers, and has leases for what was admitted without."""
        while self.alone:
            await self._clock.sleep(self._chance.uniform(LEAST_PROBE_SECS, MOST_PROBE_SECS))
            try:
                with self._call():
                    await self._share_again()
            except StoreUnavailable as error:
                self._heard(error.message)
            except Exception:
                self._failures.inc()
                log.exception("sharing limits again failed inside QueryFlux; trying again")

    async def _share_again(self) -> None:
        """Raises StoreUnavailable."""
        await self.store.counts()
        asked: set[Holding] = set()
        while more := await self._take_again(State.LOCAL, but=asked):
            asked |= more
        self.alone = False
        self._heard()
        log.info("limits are shared again; leases taken for %d queries that run", len(asked))

    # The end.

    async def leave(self) -> None:
        """The end of a process: as ``close``, if it ever asked for a lease. What the store has under the
        instance id of one that never did is another's: of the process whose ports kept it from starting."""
        if self._used:
            await self.close()
        else:
            self._closed = True
            await self.tasks.close()

    async def close(self) -> None:
        """Give back everything at once: what is held and what is queued. For when no query is left."""
        self._closed = True
        self.store.stop()
        await self._calls_end()
        await self._release_all()
        for holding in (*self._held.values(), *self._releasing.values()):
            holding.move(Event.ABANDON)
        self._held.clear()
        self._releasing.clear()
        await self.tasks.close()

    async def _release_all(self) -> None:
        began = self._clock.monotonic()
        try:
            try:
                count = await self.store.release_all()
            except StoreUnavailable:  # as when one that was given up still holds rows
                if self._clock.monotonic() - began > LAST_TRY_SECS:
                    raise  # nobody answers: a second wait of that length only holds up the end
                await self._clock.sleep(LAST_RETRY_SECS)
                count = await self.store.release_all()
            log.info("released %d leases", count)
        except StoreUnavailable as error:
            log.warning("leases are left to run out: %s", error.message)

    async def _calls_end(self) -> None:
        """Until the store is at nothing of ours any more, or for LAST_CALLS_SECS."""
        under_way = {*self._acquires.under_way, *self._calling, *self.store.under_way}
        if not under_way:
            return
        calls = asyncio.ensure_future(asyncio.wait(under_way))
        timer = self._clock.call_later(LAST_CALLS_SECS, calls.cancel)
        await asyncio.gather(calls, return_exceptions=True)
        timer.cancel()
