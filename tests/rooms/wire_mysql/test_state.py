"""Every pair of phase and event, legal or not."""

import pytest

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.mysql.state import TRANSITIONS, Event, Lifecycle, Phase

PROVED = {Phase.READY, Phase.RUNNING}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("phase", Phase)
def test_every_pair(phase: Phase, event: Event) -> None:
    lifecycle = Lifecycle()
    lifecycle.phase = phase
    following = TRANSITIONS.get((phase, event))
    if following is None:
        with pytest.raises(ProtocolViolation):
            lifecycle.advance(event)
        assert lifecycle.phase is phase
    else:
        lifecycle.advance(event)
        assert lifecycle.phase is following


def test_only_proof_leads_to_the_command_phase() -> None:
    entrances = {event for (phase, event), to in TRANSITIONS.items() if to in PROVED and phase not in PROVED}
    assert entrances == {Event.PROVED}


def test_nothing_comes_after_the_end() -> None:
    assert {to for (phase, _), to in TRANSITIONS.items() if phase is Phase.CLOSED} == {Phase.CLOSED}


def test_every_phase_can_end_and_is_reached() -> None:
    assert all((phase, Event.CLOSE) in TRANSITIONS for phase in Phase)
    assert set(TRANSITIONS.values()) | {Phase.GREETING} == set(Phase)
