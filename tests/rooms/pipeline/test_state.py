"""The life of a query: every pair of the table, and every pair that is not in it."""

import itertools

import pytest

from queryflux.pipeline.state import (
    ADMITTED_AT_ONCE,
    ANSWERED,
    ASKED,
    OVER,
    TRANSITIONS,
    Event,
    State,
    after,
    walk,
)

PAIRS = list(itertools.product(State, Event))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_pair_is_a_transition_or_an_error(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(LookupError, match=state.value):
            after(state, event)


def test_every_state_but_the_last_can_end_and_the_last_is_final() -> None:
    for state in State:
        assert ((state, Event.END) in TRANSITIONS) is (state is not State.ENDED)
    assert not any(state is State.ENDED for state, _ in TRANSITIONS)


def test_every_state_is_reached_from_the_first() -> None:
    reached = {State.RECEIVED}
    while True:
        more = {after for (state, _), after in TRANSITIONS.items() if state in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == set(State)


def test_the_steps_of_the_lane_are_those_of_the_table() -> None:
    steps = [Event.ROUTE, Event.ADMIT, Event.RUN, Event.ANSWER, Event.END]
    visited = [walk(State.RECEIVED, *steps[:count]) for count in range(2, len(steps) + 1)]
    assert visited == [ADMITTED_AT_ONCE, ASKED, ANSWERED, OVER]
    assert visited == [State.ADMITTED, State.RUNNING, State.STREAMING, State.ENDED]


@pytest.mark.parametrize("first", list(Event))
@pytest.mark.parametrize("second", list(Event))
def test_a_walk_is_one_step_after_the_other(first: Event, second: Event) -> None:
    for state in State:
        try:
            expected = after(after(state, first), second)
        except LookupError:
            with pytest.raises(LookupError):
                walk(state, first, second)
        else:
            assert walk(state, first, second) is expected
