"""The life of a lease: a table of states and events, and the holding that walks it."""

from dataclasses import dataclass
from enum import Enum

from queryflux.admission.grouped import Ask
from queryflux.admission.port import Lease


class State(Enum):
    """Where a lease stands."""

    __hash__ = object.__hash__

    NONE = "none"
    REQUESTED = "requested"
    HELD = "held"
    RENEWING = "renewing"
    RELEASING = "releasing"
    RELEASED = "released"
    LOST = "lost"
    ABANDONED = "abandoned"
    LOCAL = "local"
    """Admitted on this process's own limit while nobody grants; a lease is taken when somebody does."""


class Event(Enum):
    """What happens to it."""

    __hash__ = object.__hash__

    REQUEST = "request"
    ADOPT = "adopt"
    """Its query was taken over from another process, and the lease came with it."""
    ADMIT = "admit"
    """By this process's own limit."""
    GRANT = "grant"
    DENY = "deny"
    FAIL = "fail"
    """The store did not answer."""
    RENEW = "renew"
    RENEWED = "renewed"
    MISSING = "missing"
    RELEASE = "release"
    CONFIRM = "confirm"
    ABANDON = "abandon"
    """This process ends, and the store frees it, at once or in time; or its query goes on elsewhere."""


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.NONE, Event.REQUEST): State.REQUESTED,
    (State.NONE, Event.ADOPT): State.HELD,  # if the store has none, the next renewal takes one
    (State.NONE, Event.RELEASE): State.RELEASING,  # no limit, no lease; its release is harmless
    (State.REQUESTED, Event.GRANT): State.HELD,
    (State.REQUESTED, Event.DENY): State.NONE,
    (State.REQUESTED, Event.FAIL): State.REQUESTED,  # it may be ours
    (State.REQUESTED, Event.REQUEST): State.REQUESTED,  # ... and is asked for again
    (State.REQUESTED, Event.RELEASE): State.RELEASING,  # ... or given back, to be sure
    (State.HELD, Event.RENEW): State.RENEWING,
    (State.HELD, Event.RELEASE): State.RELEASING,
    (State.RENEWING, Event.RENEWED): State.HELD,
    (State.RENEWING, Event.MISSING): State.LOST,
    (State.RENEWING, Event.FAIL): State.HELD,
    (State.RENEWING, Event.RELEASE): State.RELEASING,
    (State.LOST, Event.GRANT): State.HELD,
    (State.LOST, Event.DENY): State.LOST,  # another process holds it: tried again with the next renewal
    (State.LOST, Event.FAIL): State.LOST,
    (State.LOST, Event.RELEASE): State.RELEASING,
    (State.NONE, Event.ADMIT): State.LOCAL,
    (State.REQUESTED, Event.ADMIT): State.LOCAL,
    (State.LOCAL, Event.GRANT): State.HELD,  # above the cap if need be, as what was lost
    (State.LOCAL, Event.DENY): State.LOCAL,
    (State.LOCAL, Event.FAIL): State.LOCAL,
    (State.LOCAL, Event.RELEASE): State.RELEASING,
    (State.RELEASING, Event.CONFIRM): State.RELEASED,
    (State.REQUESTED, Event.ABANDON): State.ABANDONED,
    (State.HELD, Event.ABANDON): State.ABANDONED,
    (State.RENEWING, Event.ABANDON): State.ABANDONED,
    (State.LOST, Event.ABANDON): State.ABANDONED,
    (State.RELEASING, Event.ABANDON): State.ABANDONED,
    (State.LOCAL, Event.ABANDON): State.ABANDONED,
}


def after(state: State, event: Event) -> State:
    """The state that follows. Raises LookupError where the table has no such pair."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LookupError(f"a lease that is {state.value} cannot {event.value}") from None


@dataclass(slots=True, eq=False)
class Holding:
    """One query's lease on one cluster, on its way from none to released."""

    lease: Lease
    state: State = State.NONE
    ask: Ask | None = None
    """The latest one; only its answer counts."""
    doubtful: bool = False
    """The store has not answered some ask, and may have granted it."""

    def move(self, event: Event) -> None:
        """Take one step."""
        self.state = after(self.state, event)
