"""The life of a statement as its client sees it: from the POST to the last page, or another end."""

from enum import StrEnum


class State(StrEnum):
    """Where a statement stands."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    PAGING = "paging"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


class Event(StrEnum):
    """What happens to it."""

    QUEUE = "wait for room"
    RUN = "run"
    PAGE = "give a page"
    END = "end"
    FAIL = "fail"
    CANCEL = "be cancelled"
    ABANDON = "be abandoned"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.SUBMITTED, Event.QUEUE): State.QUEUED,
    (State.SUBMITTED, Event.RUN): State.RUNNING,
    (State.QUEUED, Event.QUEUE): State.QUEUED,
    (State.QUEUED, Event.RUN): State.RUNNING,
    (State.QUEUED, Event.FAIL): State.FAILED,
    (State.QUEUED, Event.CANCEL): State.CANCELLED,
    (State.QUEUED, Event.ABANDON): State.ABANDONED,
    (State.RUNNING, Event.QUEUE): State.QUEUED,  # its member could not be reached, the others are full
    (State.RUNNING, Event.RUN): State.RUNNING,
    (State.RUNNING, Event.PAGE): State.PAGING,
    (State.RUNNING, Event.END): State.FINISHED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.ABANDON): State.ABANDONED,
    (State.PAGING, Event.RUN): State.PAGING,
    (State.PAGING, Event.PAGE): State.PAGING,
    (State.PAGING, Event.END): State.FINISHED,
    (State.PAGING, Event.FAIL): State.FAILED,
    (State.PAGING, Event.CANCEL): State.CANCELLED,
    (State.PAGING, Event.ABANDON): State.ABANDONED,
}
STOPPED = frozenset({State.CANCELLED, State.ABANDONED})
OVER = frozenset({State.FINISHED, State.FAILED, *STOPPED})


def after(state: State, event: Event) -> State:
    """The state that follows. Raises LookupError where the table has no such pair."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LookupError(f"a statement that is {state.value} cannot {event.value}") from None
