"""Local slots and the queue before them.

A query takes one slot on one member of its group. When no member has room it waits; waiters are served in
order of arrival, across all groups that share a cluster, and only ever woken by an event: a release, a
member that came back, a limit that changed, their own time-out. Nobody overtakes within a group. There is no
await between the decision and the taking of a slot, so no lock is needed: everything happens on one event
loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from queryflux.admission.decide import CHOOSERS, Strategy, has_room
from queryflux.model.errors import CapacityTimeout, NoCapacity, QueryFluxError, QueueFull, Unavailable
from queryflux.runtime.clock import Clock, Timer


@dataclass(slots=True)
class Member:
    """One runtime cluster as admission sees it; shared by every group that lists it."""

    name: str
    limit: int | None = None
    enabled: bool = True
    down: str = ""
    """Why it cannot be reached; empty while it can."""
    running: int = 0
    full_at: int = -1
    """The highest limit at which the fleet's count left no place, until there may be one again."""
    unanswered: str = ""
    """Why the fleet's count could not be asked; empty while it can."""
    groups: "list[Group]" = field(default_factory=list)
    configured: tuple[int | None, bool] = field(init=False)
    """``limit`` and ``enabled`` as the configuration has them; an operator may have set others."""

    def __post_init__(self) -> None:
        self.configured = (self.limit, self.enabled)

    @property
    def usable(self) -> bool:
        return self.enabled and not self.down


@dataclass(slots=True)
class Group:
    """A pool of members. ``limit`` applies to each member that has none of its own."""

    name: str
    members: list[Member]
    limit: int | None = None
    max_queued: int | None = None
    wait_secs: float = 300.0
    strategy: Strategy = Strategy.ROUND_ROBIN
    waiters: "deque[Ticket]" = field(default_factory=deque)
    turn: int = 0
    heir: "Group | None" = None
    """The group of a later configuration that took its waiters over."""
    ended: QueryFluxError | None = None
    """Why it has no heir."""

    def limit_of(self, member: Member) -> int | None:
        """The cap in force for a member: its own, else the group's; None is no cap."""
        return member.limit if member.limit is not None else self.limit


class Slot:
    """The right to run one query on a member: had by being made, given back by ``release``, and counted
    nowhere else. Must be released; releasing twice is harmless."""

    __slots__ = ("_admission", "group", "member")

    def __init__(self, admission: "Admission", group: Group, member: Member) -> None:
        self._admission: Admission | None = admission
        self.group = group
        self.member = member
        group.turn += 1
        member.running += 1

    @property
    def congested(self) -> bool:
        """Whether giving it back has to be waited for now."""
        return False

    @property
    def unsettled(self) -> "asyncio.Task[None] | None":
        """What is left to wait for once it was given back."""
        return None

    def release(self) -> None:
        """Give it back; the first waiter that fits goes on."""
        admission = self._admission
        if admission is None:
            return
        self._admission = None
        member = self.member
        member.running -= 1
        for group in member.groups:
            if group.waiters:
                admission.wake(member)
                return

    def hand_over(self) -> None:
        """Give it back here; its query goes on in another process."""
        self.release()


class Ticket:
    """A query's place: it has a ``slot`` at once, or waits for one."""

    __slots__ = ("_admission", "_future", "_timer", "arrival", "excluded", "group", "query_id", "slot")

    def __init__(
        self, admission: "Admission", group: Group, excluded: Collection[str], query_id: str
    ) -> None:
        self._admission = admission
        self.excluded = excluded
        self.query_id = query_id
        self._future: asyncio.Future[Slot] | None = None
        self._timer: Timer | None = None
        self.arrival = 0
        self.group = group
        self.slot: Slot | None = None

    def fits(self) -> Member | None:
        """The member it would go to now."""
        return self._admission.pick(self.group, self.excluded)

    def queue(self, future: "asyncio.Future[Slot]", timer: Timer, arrival: int) -> None:
        """Begin to wait."""
        self._future, self._timer, self.arrival = future, timer, arrival

    @property
    def gone(self) -> bool:
        """It waited, and was refused or given up."""
        return self._future is not None and self._future.done() and self.slot is None

    def grant(self, slot: Slot) -> None:
        """A slot has come: its waiter goes on."""
        self.slot = slot
        self._settle()
        if self._future is not None and not self._future.done():
            self._future.set_result(slot)

    def refuse(self, error: QueryFluxError) -> None:
        """No slot will come."""
        self._settle()
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # seen: its query may never have begun to wait

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def wait(self) -> Slot:
        """The slot. Raises CapacityTimeout, Unavailable, or what ``refuse`` was given. Cancelling the waiter
        leaves the queue, and a slot that was granted at the same moment goes back."""
        if self.slot is not None:
            return self.slot
        assert self._future is not None
        try:
            return await self._future
        except asyncio.CancelledError:
            self.leave()
            raise

    def leave(self) -> None:
        """Stop waiting, or give back what was granted and not used."""
        self._settle()
        self._admission.left(self)
        if self.slot is not None:
            self.slot.release()


class Admission:
    """The slots of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._arrivals = 0

    def enter(self, group: Group, excluded: Collection[str] = (), query_id: str = "") -> Ticket:
        """Take a slot, or a place in the queue. ``excluded`` names members that were just found unreachable.

        Raises NoCapacity (every usable member has limit 0), Unavailable (no member can run anything now),
        QueueFull.
        """
        ticket = Ticket(self, group, excluded, query_id)
        ticket.slot = self.take(group, excluded)
        if ticket.slot is None:
            self.wait_in(group, ticket)
        return ticket

    def wait_in(self, group: Group, ticket: Ticket) -> None:
        """A place at the end of the queue. Raises as ``enter``."""
        if error := hopeless(group, ticket.excluded):
            raise error
        if error := queue_full(group, len(group.waiters)):
            raise error
        self.begin_waiting(ticket)
        group.waiters.append(ticket)

    def begin_waiting(self, ticket: Ticket) -> None:
        """It has no slot yet; its time begins to run."""
        self._arrivals += 1
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(ticket.group.wait_secs, _expiry(ticket))
        ticket.queue(future, timer, self._arrivals)

    def take(self, group: Group, excluded: Collection[str] = ()) -> Slot | None:
        """A slot at once; None where a query has to wait or is refused, as ``enter`` then says."""
        if group.waiters:
            return None
        members = group.members
        if len(members) == 1 and not excluded:  # as most groups are: ``pick``, in short
            member = members[0]
            limit = member.limit if member.limit is not None else group.limit
            if member.down or not member.enabled or (limit is not None and member.running >= limit):
                return None
            return Slot(self, group, member)
        choice = self.pick(group, excluded)
        return Slot(self, group, choice) if choice is not None else None

    def adopt(self, group: Group, member: Member, query_id: str) -> Slot:
        """The slot of a query that runs already, begun by another process; it is counted, and never
        refused."""
        return Slot(self, group, member)

    def pick(self, group: Group, excluded: Collection[str]) -> Member | None:
        """The member that the group's strategy gives among those with room."""
        if len(group.members) == 1 and not excluded:
            member = group.members[0]
            return member if has_room(member, group.limit_of(member)) else None
        eligible = [
            member
            for member in group.members
            if has_room(member, group.limit_of(member)) and member.name not in excluded
        ]
        if not eligible:
            return None
        return eligible[CHOOSERS[group.strategy](eligible, group.turn)]

    def wake(self, member: Member) -> None:
        """Room may have appeared on ``member``: serve whoever has waited longest among its groups."""
        while fronts := [ticket for group in member.groups if group.waiters and (ticket := front(group))]:
            ticket = min(fronts, key=_arrival) if len(fronts) > 1 else fronts[0]
            choice = ticket.fits()
            assert choice is not None
            ticket.group.waiters.remove(ticket)
            self.serve(ticket, choice)

    def serve(self, ticket: Ticket, member: Member) -> None:
        """It is its turn, and there is room."""
        ticket.grant(Slot(self, ticket.group, member))

    def mark_down(self, member: Member, reason: str) -> None:
        """``member`` cannot be reached: no new query goes there, and groups left without any member refuse
        their waiters instead of letting them wait for nothing."""
        member.down = reason
        self._refuse_hopeless(member)

    def mark_up(self, member: Member) -> None:
        """``member`` answers again."""
        member.down = ""
        self.wake(member)

    def changed(self, member: Member) -> None:
        """``member`` has another limit now, or was enabled or disabled."""
        self._refuse_hopeless(member)
        self.wake(member)

    def _refuse_hopeless(self, member: Member) -> None:
        for group in member.groups:
            if (error := hopeless(group, ())) is not None:
                while group.waiters:
                    group.waiters.popleft().refuse(error)

    def left(self, ticket: Ticket) -> None:
        """A waiter has gone."""
        if ticket in ticket.group.waiters:
            ticket.group.waiters.remove(ticket)
            for member in ticket.group.members:
                self.wake(member)


def _arrival(ticket: Ticket) -> int:
    return ticket.arrival


def front(group: Group) -> Ticket | None:
    """Whose turn it is and who has room. Only a waiter that just found a member unreachable, and may not go
    there, lets others pass: behind anyone else nobody fits better."""
    for ticket in group.waiters:
        if ticket.fits() is not None:
            return ticket
        if not ticket.excluded:
            return None
    return None


def hopeless(group: Group, excluded: Collection[str]) -> QueryFluxError | None:
    """Why waiting in ``group`` is of no use, or None."""
    usable = [member for member in group.members if member.usable and member.name not in excluded]
    if not usable:
        reasons = "; ".join(f"{member.name}: {_why_not(member)}" for member in group.members)
        return Unavailable(
            f"no cluster of group {group.name!r} can run queries now ({reasons or 'it has no members'})",
            hint="retry later; the operator finds the reason in the log and in queryflux_cluster_up",
        )
    if all(group.limit_of(member) == 0 for member in usable):
        return NoCapacity(
            f"group {group.name!r} runs no queries: maxRunningQueries is 0",
            hint="set maxRunningQueries of the group or its clusters above 0, or leave it out for no limit",
        )
    return None


def queue_full(group: Group, waiting: int) -> QueueFull | None:
    """Why one more may not wait in ``group`` beside so many, or None."""
    if group.max_queued is None or waiting < group.max_queued:
        return None
    return QueueFull(
        f"group {group.name!r} has {waiting} {'query' if waiting == 1 else 'queries'} waiting, and its "
        f"maxQueuedQueries is {group.max_queued}{_unanswered(group)}",
        hint="retry later, or raise maxQueuedQueries or maxRunningQueries of the group",
    )


def _why_not(member: Member) -> str:
    if not member.enabled:
        return "disabled"
    return member.down or "just found unreachable"


def _unanswered(group: Group) -> str:
    """Why the fleet could not be asked, as the end of a sentence; empty while it can be."""
    reasons = dict.fromkeys(member.unanswered for member in group.members if member.unanswered)
    return f": {'; '.join(reasons)}" if reasons else ""


def _expiry(ticket: Ticket) -> Callable[[], None]:
    def expire() -> None:
        group = ticket.group
        unanswered = _unanswered(group)
        hint = "retry later, or raise maxRunningQueries or capacityWaitTimeoutSecs of the group"
        if unanswered:
            hint = "retry later; no limit is the cause: the operator finds more in the log"
        said = f"waited {group.wait_secs:g} s for room in group {group.name!r}{unanswered}"
        ticket.refuse(CapacityTimeout(said, hint=hint))
        ticket.leave()

    return expire
