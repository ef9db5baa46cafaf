"""The life of a query: received, routed, waiting, admitted, running, streaming, and one ending."""

from enum import Enum


class State(Enum):
    """Where a query stands."""

    __hash__ = object.__hash__

    RECEIVED = "received"
    ROUTED = "routed"
    WAITING = "waiting"
    ADMITTED = "admitted"
    RUNNING = "running"
    STREAMING = "streaming"
    ENDED = "ended"


class Event(Enum):
    """What happens to it."""

    __hash__ = object.__hash__

    ROUTE = "route"
    QUEUE = "queue"
    ADMIT = "admit"
    RUN = "run"
    ANSWER = "answer"
    END = "end"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.RECEIVED, Event.ROUTE): State.ROUTED,
    (State.ROUTED, Event.QUEUE): State.WAITING,
    (State.ROUTED, Event.ADMIT): State.ADMITTED,
    (State.WAITING, Event.ADMIT): State.ADMITTED,
    (State.ADMITTED, Event.RUN): State.RUNNING,
    (State.RUNNING, Event.QUEUE): State.WAITING,  # its member could not be reached and the others are full
    (State.RUNNING, Event.ADMIT): State.ADMITTED,  # ... or another has room
    (State.RUNNING, Event.ANSWER): State.STREAMING,
    (State.RECEIVED, Event.END): State.ENDED,
    (State.ROUTED, Event.END): State.ENDED,
    (State.WAITING, Event.END): State.ENDED,
    (State.ADMITTED, Event.END): State.ENDED,
    (State.RUNNING, Event.END): State.ENDED,
    (State.STREAMING, Event.END): State.ENDED,
}


def after(state: State, event: Event) -> State:
    """The state that follows. Raises LookupError where the table has no such pair."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LookupError(f"a query that is {state.value} cannot {event.value}") from None


def walk(state: State, *events: Event) -> State:
    """Where several events lead, one after the other. Raises LookupError at the first that is not allowed."""
    for event in events:
        state = after(state, event)
    return state


# The steps of a query for which there is room at once and nothing to translate (lane.py), worked out once.
ADMITTED_AT_ONCE = walk(State.RECEIVED, Event.ROUTE, Event.ADMIT)
ASKED = after(ADMITTED_AT_ONCE, Event.RUN)
ANSWERED = after(ASKED, Event.ANSWER)
OVER = after(ANSWERED, Event.END)
