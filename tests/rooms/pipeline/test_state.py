"""The life of a query: every pair of the table, and every pair that is not in it."""

import itertools

import pytest

from queryflux.pipeline.state import TRANSITIONS, Event, State, after

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
