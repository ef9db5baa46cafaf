"""A new configuration takes over what the old one was doing: slots taken, members that are down, waiters.

Members live on by name, so that whoever runs on one still counts there and a limit holds across the change:
after a cap is lowered nothing new is granted until below it. Waiters keep their places in the group of the
same name. All of it happens at once, without an await.
"""

from collections import deque
from collections.abc import Collection, Mapping

from queryflux.admission.slots import Admission, Group, Member, Ticket, hopeless
from queryflux.model.errors import QueryFluxError, Unavailable


def carry_members(before: Mapping[str, Member], after: Mapping[str, Member]) -> dict[str, Member]:
    """The members of the new configuration: those that were there before, with their new settings, and the
    new ones; what an operator has set on a member stays until its own settings change. They belong to no
    group yet. ``before`` is what ``remembered`` gave."""
    carried = {}
    for name, fresh in after.items():
        member = before.get(name, fresh)
        if member.configured != fresh.configured:
            member.configured = fresh.configured
            member.limit, member.enabled = fresh.limit, fresh.enabled
        carried[name] = member
    for member in (*before.values(), *carried.values()):
        member.groups = []
    return carried


def remembered(before: Mapping[str, Member], carried: Mapping[str, Member]) -> dict[str, Member]:
    """What the change after this one has to know: a cluster that was removed while it was busy, and comes
    back, still counts who runs there."""
    busy = {name: member for name, member in before.items() if member.running}
    return {**busy, **carried}


def carry_groups(
    admission: Admission,
    before: Mapping[str, Group],
    after: Mapping[str, Group],
    members: Mapping[str, Member],
    disabled: Collection[str] = (),
) -> None:
    """Give the new groups their members (from ``carry_members``) and the waiters of the old ones. Those of a
    group that is no more, or is disabled, are refused; whoever has room now goes on."""
    for group in after.values():
        group.members = [members[member.name] for member in group.members]
        for member in group.members:
            member.groups.append(group)
    for name, old in before.items():
        waiters, old.waiters = old.waiters, deque()
        heir = after.get(name)
        if heir is None or name in disabled:
            what = "removed" if heir is None else "disabled"
            old.ended = Unavailable(f"group {name!r} was {what} while the query waited for room in it")
            _refuse(waiters, old.ended)
        else:
            old.heir = heir
            heir.turn = old.turn
            heir.waiters = waiters
            for ticket in waiters:
                ticket.group = heir
            if error := hopeless(heir, ()):
                heir.waiters = deque()
                _refuse(waiters, error)
    for member in [it for group in after.values() if group.waiters for it in group.members]:
        admission.wake(member)


def _refuse(waiters: "deque[Ticket]", error: QueryFluxError) -> None:
    for ticket in waiters:
        ticket.refuse(error)
