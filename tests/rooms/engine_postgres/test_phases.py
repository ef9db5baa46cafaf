"""The life of a relayed statement, pair by pair."""

import itertools

import pytest

from queryflux.engines.postgres.phases import TABLE, Event, Phase

P, E = Phase, Event

EXPECTED = {
    P.RUNNING: {
        E.COPY_IN: P.UPLOADING,
        E.SUSPEND: P.SUSPENDED,
        E.STALE: P.RETRYING,
        E.COMPLETE: P.COMPLETE,
        E.ERROR: P.COMPLETE,
        E.READY: P.OVER,
    },
    P.UPLOADING: {E.UPLOADED: P.RUNNING, E.ERROR: P.COMPLETE},
    P.SUSPENDED: {E.READY: P.SUSPENDED, E.RESUME: P.RUNNING, E.ERROR: P.COMPLETE},
    P.RETRYING: {E.READY: P.RUNNING},
    P.COMPLETE: {E.COPY_IN: P.UPLOADING, E.COMPLETE: P.COMPLETE, E.ERROR: P.COMPLETE, E.READY: P.OVER},
    P.OVER: {},
}


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(P, E)))
def test_every_pair(phase: Phase, event: Event) -> None:
    expected = P.OVER if event is E.LEAVE else EXPECTED[phase].get(event)
    assert TABLE.get((phase, event)) is expected
