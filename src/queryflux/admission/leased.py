"""Slots with leases: a query that has a slot of this process asks for a lease of the fleet before it goes on.

Denied, it gives the slot back, tries the other members, and returns to its place in the queue: arrival order
holds within a process. One that had no place there yet, and finds the queue full, is refused as whoever comes
then is. The member counts as full from then on, for the limit that was refused and every lower one, so that
later queries queue behind. It is tried again when a place of ours comes free (its release goes with the next
acquire, or has been confirmed) and, for places that other processes give back, by one jittered timer for each
cluster. A store that does not answer is treated alike: nothing runs on a guess, unless this process may go by
its own limits then (leases.py), which its slots keep.
"""

import asyncio
from collections import Counter
from collections.abc import Collection
from functools import partial
from random import Random

from queryflux.admission.grouped import Verdict
from queryflux.admission.leases import Leases
from queryflux.admission.lifecycle import Holding
from queryflux.admission.port import UNLIMITED, Lease
from queryflux.admission.slots import Admission, Group, Member, Slot, Ticket, hopeless, queue_full
from queryflux.runtime.clock import Clock, Timer

LEAST_RETRY_SECS, MOST_RETRY_SECS = 0.25, 0.5


class LeasedSlot(Slot):
    """A slot and the lease that goes with it. The lease goes back first: whoever gets the slot next takes its
    release along."""

    __slots__ = ("_leased", "_unsettled", "holding")

    def __init__(self, admission: "LeasedAdmission", group: Group, member: Member, holding: Holding) -> None:
        super().__init__(admission, group, member)
        self._leased = admission
        self._unsettled: asyncio.Task[None] | None = None
        self.holding = holding

    @property
    def congested(self) -> bool:
        return self._leased.leases.congested

    @property
    def unsettled(self) -> "asyncio.Task[None] | None":
        return self._unsettled

    def release(self) -> None:
        if self._admission is not None:
            self._unsettled = self._leased.leases.release(self.holding)
            self._leased.reopen(self.member.name)
        super().release()

    def hand_over(self) -> None:
        if self._admission is not None:
            self._leased.leases.abandon(self.holding)
        super().release()

    def forgo(self) -> None:
        """There is no lease for it."""
        self._admission = None
        self.member.running -= 1


class LeasedTicket(Ticket):
    """A ticket whose query asks for leases."""

    __slots__ = ("holding", "queued")
    holding: Holding | None
    queued: bool
    """It has a place in the queue, though it is not in it while it asks."""


class LeasedAdmission(Admission):
    """The slots of one process among several."""

    def __init__(self, clock: Clock, leases: Leases, chance: Random | None = None) -> None:
        super().__init__(clock)
        self.leases = leases
        leases.on_freed = self._freed
        self._chance = chance or Random()
        self._full: dict[str, list[Member]] = {}
        self._retries: dict[str, Timer] = {}
        self._reopened: Counter[str] = Counter()
        self._yielding = False

    # Entering.

    def take(self, group: Group, excluded: Collection[str] = ()) -> Slot | None:
        """At once only where there is no limit to share: who needs a lease has to say its id."""
        choice = self.pick(group, excluded) if not group.waiters else None
        if choice is None or group.limit_of(choice) is not None:
            return None
        return Slot(self, group, choice)

    def enter(self, group: Group, excluded: Collection[str] = (), query_id: str = "") -> Ticket:
        ticket = LeasedTicket(self, group, excluded, query_id)
        ticket.holding = None
        ticket.queued = False
        choice = ticket.fits() if not group.waiters else None
        if choice is None:
            self.wait_in(group, ticket)
            ticket.queued = True
            return ticket
        if group.limit_of(choice) is not None:
            self.begin_waiting(ticket)
        self.serve(ticket, choice)
        return ticket

    def adopt(self, group: Group, member: Member, query_id: str) -> Slot:
        holding = Holding(Lease(member.name, query_id))
        if group.limit_of(member) is not None:
            self.leases.adopt(holding)
        return LeasedSlot(self, group, member, holding)

    def serve(self, ticket: Ticket, member: Member) -> None:
        assert isinstance(ticket, LeasedTicket)
        holding = ticket.holding
        if holding is not None and holding.lease.cluster != member.name:
            self.leases.drop(holding)
            holding = None
        if holding is None:
            holding = ticket.holding = Holding(Lease(member.name, ticket.query_id))
        slot = LeasedSlot(self, ticket.group, member, holding)
        limit = ticket.group.limit_of(member)
        if limit is None:
            ticket.grant(slot)  # nothing to share
            return
        if self.leases.alone:
            self.leases.admit_alone(holding)
            ticket.grant(slot)
            return
        seen = self._reopened[member.name]
        answer = partial(self._answered, ticket, slot, limit, seen)
        self.leases.ask(holding, limit, answer, ticket.arrival)

    def _answered(
        self, ticket: LeasedTicket, slot: LeasedSlot, limit: int, seen: int, verdict: Verdict, reason: str
    ) -> None:
        member = slot.member
        alone = verdict is Verdict.FAILED and self.leases.own_limits
        member.unanswered = reason if not alone else ""
        if ticket.gone:
            self._give_up(ticket, slot, verdict)
        elif verdict is Verdict.GRANTED:
            ticket.grant(slot)
        elif alone:
            self.leases.admit_alone(slot.holding, reason)
            ticket.grant(slot)
        else:
            slot.forgo()
            self._return(ticket)
            if reason:
                self._fill(member, UNLIMITED, reason)
            elif not self._yielding:
                self._denied(ticket, member, limit, seen)
            for other in ticket.group.members:
                self.wake(other)
            if not ticket.queued and ticket in ticket.group.waiters:
                self._stay(ticket)

    def _denied(self, ticket: LeasedTicket, member: Member, limit: int, seen: int) -> None:
        """There was no place. One that came free while it asked is not for those that came later and hold the
        slots: they return to the queue too, and all ask anew, in order of arrival."""
        if self._reopened[member.name] == seen:
            self._fill(member, limit, "")
            return
        self._yielding = True
        try:
            self.leases.withdraw(member.name, limit, "", ticket.arrival)
        finally:
            self._yielding = False

    def _stay(self, ticket: LeasedTicket) -> None:
        """No member has room: it waits, if it may."""
        group = ticket.group
        if error := queue_full(group, len(group.waiters) - 1):
            ticket.refuse(error)
            ticket.leave()
        else:
            ticket.queued = True

    def _give_up(self, ticket: LeasedTicket, slot: LeasedSlot, verdict: Verdict) -> None:
        """Its query has gone while the store was asked: what was granted goes back."""
        ticket.holding = None
        slot.forgo()
        self.leases.drop(slot.holding)
        if verdict is Verdict.GRANTED:
            self.reopen(slot.member.name)
        self.wake(slot.member)

    def _return(self, ticket: LeasedTicket) -> None:
        """Back to its place in the queue; that of a later configuration if there was a change meanwhile."""
        while ticket.group.heir is not None:
            ticket.group = ticket.group.heir
        group = ticket.group
        if error := group.ended or hopeless(group, ticket.excluded):
            ticket.refuse(error)
            ticket.leave()
            return
        behind = sum(waiter.arrival > ticket.arrival for waiter in group.waiters)
        group.waiters.insert(len(group.waiters) - behind, ticket)

    def left(self, ticket: Ticket) -> None:
        super().left(ticket)
        assert isinstance(ticket, LeasedTicket)
        holding = ticket.holding
        if holding is not None and holding.ask is None and ticket.slot is None:
            ticket.holding = None
            self.leases.drop(holding)

    # Full, and open again.

    def _fill(self, member: Member, limit: int, reason: str) -> None:
        name = member.name
        full = self._full.setdefault(name, [])
        if member.full_at < 0:
            full.append(member)
        member.full_at = max(member.full_at, limit)
        if name not in self._retries:
            seconds = self._chance.uniform(LEAST_RETRY_SECS, MOST_RETRY_SECS)
            self._retries[name] = self._clock.call_later(seconds, partial(self._retry, name))
        self.leases.withdraw(name, limit, reason)

    def _retry(self, name: str) -> None:
        del self._retries[name]
        self._freed(name)

    def reopen(self, name: str) -> list[Member]:
        """A place of the cluster may be free; gives the members that had been full."""
        self._reopened[name] += 1
        full = self._full.pop(name, [])
        for member in full:
            member.full_at = -1
        return full

    def _freed(self, name: str) -> None:
        for member in self.reopen(name):
            self.wake(member)
