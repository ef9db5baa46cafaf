"""A model of the capacity functions of PostgreSQL (V21 to V25): transactions that take their time between
statements.

Others see what a transaction did once it is committed; what it has locked they wait for, in order of
arrival: the clusters' advisory locks, lease rows, counter rows. Whatever it does until its commit is gone
when the database crashes or the statement takes too long. The database has a loop and a clock of its own.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from queryflux.admission.memory import Ledger
from queryflux.admission.port import UNLIMITED, Lease, Recount, Wanted
from queryflux.model.errors import StoreUnavailable
from tests.sim.world import LoopClock, ProcessLoop, World

T = TypeVar("T")
Key = tuple[str, str]
"""What can be locked: a kind and a name."""
STEP_SECS = 0.0004
STATEMENT_SECS = 2.0


@dataclass
class Row:
    """A lease."""

    cluster: str
    instance: str
    heartbeat: float
    born: int
    """Tells it from a later lease of the same query; what deletes it has seen it when it began."""


@dataclass(eq=False)
class Transaction:
    """What it holds and what it will have done. None for a row: it is deleted."""

    rows: dict[str, Row | None] = field(default_factory=dict)
    change: dict[str, int] = field(default_factory=dict)
    locks: list[Key] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    """Leases that end without having been released, and why."""
    fresh: list[tuple[str, int]] = field(default_factory=list)
    """Leases that are granted, with the limit that held."""


class Lock:
    """Who has it, and who waits for it."""

    def __init__(self, holder: Transaction) -> None:
        self.holder = holder
        self.waiting: deque[tuple[Transaction, asyncio.Future[None]]] = deque()


class ModelDatabase:
    """The tables, and the functions over them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = ProcessLoop(world)
        self.rows: dict[str, Row] = {}
        self.counters: dict[str, int] = {}
        self.drift_seen: dict[str, int] = {}
        self.sweep_locks: dict[str, tuple[str, float]] = {}
        self._turns = Ledger(LoopClock(self.loop))
        self._locks: dict[Key, Lock] = {}
        self._at_work: dict[asyncio.Task[Any], Callable[[str], None]] = {}
        self._busy = 0
        self._free = deque[asyncio.Future[None]]()
        self._exclusive = False
        self._tokens = 0
        self._born = 0
        self.down = False
        self.count_outside_lock = False
        """A planted bug."""
        self.renew_by_instance = False
        """Another one."""
        self.on_lost: Callable[[str, Row, str], object] = lambda query_id, row, why: None
        self.on_granted: Callable[[str, int], object] = lambda query_id, limit: None

    # Being asked.

    def submit(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        done: Callable[[T], object],
        failed: Callable[[str], object],
    ) -> None:
        """Run a statement; ``done`` or ``failed`` is called once, when it is over."""
        if self.down:
            failed("it is down")
            return
        self.loop.call_soon(self._begin, make, done, failed)

    def _begin(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        done: Callable[[T], object],
        failed: Callable[[str], object],
    ) -> None:
        if self.down:
            failed("it went down")
            return
        task: asyncio.Task[T] = self.loop.create_task(make())
        self._at_work[task] = lambda why: (task.cancel(why), None)[1]
        timer = self.loop.call_later(STATEMENT_SECS, task.cancel, "it took too long")

        def over(ended: "asyncio.Task[T]") -> None:
            timer.cancel()
            del self._at_work[task]
            if ended.cancelled():
                failed("it was cancelled")
            else:
                done(ended.result())

        task.add_done_callback(over)

    def crash(self) -> None:
        """Transactions under way never were; nobody is answered but by an error."""
        self.down = True
        for task in list(self._at_work):
            task.cancel()
        self._turns.waiters.clear()

    def start(self) -> None:
        """It can be asked again."""
        self.down = False

    # Transactions.

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """What is done inside is done at its end, or not at all."""
        while self._exclusive:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._free.append(waiter)
            await waiter
        self._busy += 1
        transaction = Transaction()
        try:
            yield transaction
            await self._step()
            self._commit(transaction)
        finally:
            self._busy -= 1
            for key in transaction.locks:
                self._unlock(key)
            self._wake()

    def _wake(self) -> None:
        if not self._busy or not self._exclusive:
            while self._free:
                waiter = self._free.popleft()
                if not waiter.done():
                    waiter.set_result(None)

    def _commit(self, transaction: Transaction) -> None:
        for query_id, row in transaction.rows.items():
            if row is None:
                before = self.rows.pop(query_id)
                for lost, why in transaction.lost:
                    if lost == query_id:
                        self.on_lost(query_id, before, why)
            else:
                self.rows[query_id] = row
        for query_id, limit in transaction.fresh:
            self.on_granted(query_id, limit)
        for cluster, change in transaction.change.items():
            self.counters[cluster] = max(0, self.counters.get(cluster, 0) + change)

    async def _step(self) -> None:
        await asyncio.sleep(self.world.chance.expovariate(1 / STEP_SECS))

    async def _lock(self, transaction: Transaction, key: Key) -> None:
        if key in transaction.locks:
            return
        lock = self._locks.get(key)
        if lock is None:
            self._locks[key] = Lock(transaction)
            transaction.locks.append(key)
            return
        turn: asyncio.Future[None] = self.loop.create_future()
        lock.waiting.append((transaction, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._unlock(key)
            raise
        transaction.locks.append(key)

    def _unlock(self, key: Key) -> None:
        lock = self._locks[key]
        while lock.waiting:
            transaction, turn = lock.waiting.popleft()
            if not turn.done():
                lock.holder = transaction
                turn.set_result(None)
                return
        del self._locks[key]

    def _locked(self, transaction: Transaction, key: Key) -> bool:
        return key in self._locks and key not in transaction.locks

    # Rows and counters, as a transaction sees them.

    def _row(self, transaction: Transaction, query_id: str) -> Row | None:
        return transaction.rows[query_id] if query_id in transaction.rows else self.rows.get(query_id)

    def _counter(self, transaction: Transaction, cluster: str) -> int:
        if cluster not in self.counters:
            return sum(row.cluster == cluster for row in self.rows.values())
        return self.counters[cluster] + transaction.change.get(cluster, 0)

    async def _adjust(self, transaction: Transaction, changes: dict[str, int]) -> None:
        """The statement's trigger."""
        for cluster in sorted(changes):
            await self._lock(transaction, ("counter", cluster))
            self.counters.setdefault(cluster, 0)
            transaction.change[cluster] = transaction.change.get(cluster, 0) + changes[cluster]

    async def _delete(self, transaction: Transaction, instance: str, leases: Iterable[Lease]) -> int:
        changes: dict[str, int] = {}
        named = sorted(leases, key=lambda lease: lease.query_id)
        seen = {lease.query_id: self._row(transaction, lease.query_id) for lease in named}
        for cluster, query_id in named:
            await self._lock(transaction, ("row", query_id))
            row, before = self._row(transaction, query_id), seen[query_id]
            if row is None or before is None or row.born != before.born:
                continue
            if (row.cluster, row.instance) == (cluster, instance):
                transaction.rows[query_id] = None
                changes[cluster] = changes.get(cluster, 0) - 1
        await self._adjust(transaction, changes)
        return -sum(changes.values())

    # Functions.

    async def acquire(
        self, instance: str, cluster: str, wanted: Sequence[Wanted], released: Sequence[str]
    ) -> list[bool]:
        """queryflux_capacity_try_acquire_many."""
        async with self.transaction() as transaction:
            early = self._counter(transaction, cluster) if self.count_outside_lock else None
            await self._step()
            await self._lock(transaction, ("advisory", cluster))
            given = await self._delete(transaction, instance, [Lease(cluster, one) for one in released])
            await self._step()
            granted, added, full = await self._grant(transaction, instance, cluster, wanted, early)
            if full:
                self._turns.refused(cluster, instance, max(full), gained=added > given)
            elif False not in granted:
                self._turns.served(cluster, instance)
        return granted

    async def _grant(
        self,
        transaction: Transaction,
        instance: str,
        cluster: str,
        wanted: Sequence[Wanted],
        early: int | None,
    ) -> tuple[list[bool], int, list[int]]:
        """Of each whether it is granted; how many leases are new; the limits of those without room."""
        taken = self._counter(transaction, cluster) if early is None else early
        await self._step()
        granted: list[bool] = []
        full: list[int] = []
        added = 0
        for query_id, limit in wanted:
            row = self._row(transaction, query_id)
            beside = self._turns.ahead(cluster, instance, taken)
            if row is None and (limit <= max(full, default=-1) or taken + beside >= limit):
                full.append(limit)
            elif row is None:
                await self._lock(transaction, ("row", query_id))
                row = self._row(transaction, query_id)  # another cluster's call may have been first
                if row is None:
                    self._born += 1
                    row = transaction.rows[query_id] = Row(cluster, instance, self.loop.time(), self._born)
                    transaction.fresh.append((query_id, limit))
                    taken += 1
                    added += 1
            own = row is not None and (row.cluster, row.instance) == (cluster, instance)
            if own and query_id not in transaction.rows:  # taken before: as good as new, or being ended
                own = not self._locked(transaction, ("row", query_id)) and bool(
                    await self._renew_one(transaction, instance, query_id)
                )
            granted.append(own)
        if added:
            await self._adjust(transaction, {cluster: added})
        return granted, added, full

    async def release(self, instance: str, leases: Sequence[Lease]) -> None:
        """DELETE ... WHERE query_id = ANY."""
        async with self.transaction() as transaction:
            await self._delete(transaction, instance, leases)

    async def renew(self, instance: str, leases: Sequence[Lease]) -> set[str]:
        """queryflux_capacity_renew, then those that were locked, one by one."""
        named = [query_id for _, query_id in leases]
        if self.renew_by_instance:
            named = [query_id for query_id, row in self.rows.items() if row.instance == instance]
        held: set[str] = set()
        async with self.transaction() as transaction:
            await self._step()
            for query_id in named:
                if not self._locked(transaction, ("row", query_id)):
                    held |= await self._renew_one(transaction, instance, query_id)
        for query_id in named:
            if query_id not in held and query_id in self.rows:
                async with self.transaction() as transaction:
                    held |= await self._renew_one(transaction, instance, query_id)
        return held & {query_id for _, query_id in leases}

    async def _renew_one(self, transaction: Transaction, instance: str, query_id: str) -> set[str]:
        await self._lock(transaction, ("row", query_id))
        row = self._row(transaction, query_id)
        if row is None or row.instance != instance:
            return set()
        transaction.rows[query_id] = replace(row, heartbeat=self.loop.time())
        return {query_id}

    async def release_all(self, instance: str) -> int:
        """What is an instance's."""
        own = [Lease(row.cluster, one) for one, row in self.rows.items() if row.instance == instance]
        async with self.transaction() as transaction:
            return await self._delete(transaction, instance, own)

    async def expire(self, older_than_secs: float) -> int:
        """queryflux_capacity_expire."""
        async with self.transaction() as transaction:
            before = self.loop.time() - older_than_secs
            await self._step()
            changes: dict[str, int] = {}
            for query_id, row in sorted(self.rows.items()):
                if row.heartbeat < before and not self._locked(transaction, ("row", query_id)):
                    await self._lock(transaction, ("row", query_id))
                    transaction.rows[query_id] = None
                    transaction.lost.append((query_id, "expired"))
                    changes[row.cluster] = changes.get(row.cluster, 0) - 1
            await self._adjust(transaction, changes)
        return len(transaction.lost)

    async def settle(self) -> list[Recount]:
        """queryflux_capacity_settle, of every cluster."""
        recounts = []
        for cluster in sorted(self.counters):
            async with self.transaction() as transaction:
                await self._lock(transaction, ("advisory", cluster))
                await self._lock(transaction, ("counter", cluster))
                await self._step()
                was, became = self._settle(cluster)
            if (was, became) != (0, 0):
                recounts.append(Recount(cluster, was, became))
        return [one for one in recounts if one.was != one.became or self.drift_seen.get(one.cluster)]

    def _settle(self, cluster: str) -> tuple[int, int]:
        was, seen = self.counters[cluster], self.drift_seen.get(cluster, 0)
        counted = sum(row.cluster == cluster for row in self.rows.values())
        if was > counted and was - counted != seen:
            self.drift_seen[cluster] = was - counted
            return was, was
        self.counters[cluster] = counted
        self.drift_seen[cluster] = 0
        return was, counted

    async def try_sweep_lock(self, name: str, hold_secs: float) -> str | None:
        """A row of sweep_locks."""
        await self._step()
        now = self.loop.time()
        if self.sweep_locks.get(name, ("", now))[1] > now:
            return None
        self._tokens += 1
        self.sweep_locks[name] = (str(self._tokens), now + hold_secs)
        return str(self._tokens)

    async def unlock_sweep(self, name: str, token: str, rest_secs: float) -> None:
        """Given back."""
        await self._step()
        if self.sweep_locks.get(name, ("", 0.0))[0] == token:
            self.sweep_locks[name] = ("", self.loop.time() + rest_secs)

    # What people do by hand.

    async def destroy(self, part: float) -> None:
        """TRUNCATE, or DELETE without its trigger: rows go, counters stay."""
        self._exclusive = True
        try:
            while self._busy:
                waiter: asyncio.Future[None] = self.loop.create_future()
                self._free.append(waiter)
                await waiter
            for query_id in sorted(self.rows):
                if self.world.chance.random() < part:
                    self.on_lost(query_id, self.rows.pop(query_id), "destroyed")
        finally:
            self._exclusive = False
            self._wake()


def is_retaken(limit: int) -> bool:
    """Whether a lease was granted above any cap, since its query runs."""
    return limit == UNLIMITED


def unavailable(why: str) -> StoreUnavailable:
    """What the product sees of a failure."""
    return StoreUnavailable(f"the model of a database did not answer: {why}")
