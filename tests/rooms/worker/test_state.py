"""The table of a worker's configuration states, every pair walked."""

import itertools

import pytest

from queryflux.model.errors import InternalError
from queryflux.worker.state import TRANSITIONS, ConfigEvent, ConfigState, after

S, E = ConfigState, ConfigEvent

IMPOSSIBLE = {
    # Without a configuration there is nothing to confirm.
    (S.UNCONFIGURED, E.CONFIRMED),
    # Peers are asked only for a first one, and only a copy of theirs can grow too old.
    (S.FRESH, E.PEER_SNAPSHOT),
    (S.STALE, E.PEER_SNAPSHOT),
    (S.REJECTED, E.PEER_SNAPSHOT),
    (S.FRESH, E.MAX_AGE_PASSED),
    (S.REJECTED, E.MAX_AGE_PASSED),
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)), ids=str)
def test_every_pair(state: ConfigState, event: ConfigEvent) -> None:
    if (state, event) in IMPOSSIBLE:
        with pytest.raises(InternalError):
            after(state, event)
        return
    then = after(state, event)
    if event in {E.SNAPSHOT_RECEIVED, E.CONFIRMED}:
        assert then is S.FRESH
    elif event is E.PEER_SNAPSHOT:
        assert then is S.STALE
    elif event in {E.COMPILE_FAILED, E.SCHEMA_UNKNOWN} and state is not S.UNCONFIGURED:
        assert then is S.REJECTED
    else:
        assert then is state, "what is not about a configuration changes nothing"


def test_the_table_has_no_more_than_that() -> None:
    assert len(TRANSITIONS) + len(IMPOSSIBLE) == len(S) * len(E)


def test_nothing_leads_back_to_no_configuration() -> None:
    assert {state for (state, _), then in TRANSITIONS.items() if then is S.UNCONFIGURED} == {S.UNCONFIGURED}
