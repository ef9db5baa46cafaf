"""Every pair of the two tables, and what they promise together."""

import itertools

import pytest

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.postgres.constants import Front
from queryflux.wire.postgres.lifecycle import (
    SESSION,
    STARTUP,
    Event,
    Session,
    Startup,
    StartupEvent,
    next_session,
    next_startup,
)

MESSAGES = [value for name, value in vars(Front).items() if not name.startswith("_")]


@pytest.mark.parametrize(("state", "event"), list(itertools.product(Startup, StartupEvent)))
def test_every_pair_of_start_up(state: Startup, event: StartupEvent) -> None:
    expected = STARTUP[state].get(event)
    if expected is None:
        with pytest.raises(ProtocolViolation, match=event.value):
            next_startup(state, event)
    else:
        assert next_startup(state, event) is expected


@pytest.mark.parametrize(("state", "event"), list(itertools.product(Session, [*MESSAGES, *Event])))
def test_every_pair_of_the_session(state: Session, event: int) -> None:
    expected = SESSION[state].get(event)
    if expected is None:
        with pytest.raises(ProtocolViolation, match=state.value):
            next_session(state, event)
    else:
        assert next_session(state, event) is expected


def test_nothing_but_credentials_is_taken_before_authentication() -> None:
    assert set(STARTUP[Startup.AUTHENTICATING]) == {
        StartupEvent.CREDENTIAL,
        StartupEvent.VERIFIED,
        StartupEvent.FAILED,
    }
    assert all(Front.PASSWORD not in table for table in SESSION.values())


def test_each_kind_of_encryption_can_be_asked_for_once() -> None:
    for first, second in itertools.permutations((StartupEvent.SSL_REFUSED, StartupEvent.GSS_REFUSED)):
        state = next_startup(next_startup(Startup.FRESH, first), second)
        for again in (StartupEvent.SSL_REFUSED, StartupEvent.GSS_REFUSED, StartupEvent.SSL_ACCEPTED):
            with pytest.raises(ProtocolViolation):
                next_startup(state, again)


def test_only_sync_and_terminate_leave_skipping() -> None:
    leaving = {event for event, after in SESSION[Session.SKIPPING].items() if after is not Session.SKIPPING}
    assert leaving == {Front.SYNC, Front.TERMINATE}


def test_sync_always_makes_ready_outside_a_copy() -> None:
    for state in (Session.READY, Session.BATCH, Session.SKIPPING):
        assert next_session(state, Front.SYNC) is Session.READY


def test_every_state_is_reached() -> None:
    assert {state for table in SESSION.values() for state in table.values()} == set(Session)
    reached = {state for table in STARTUP.values() for state in table.values()}
    assert reached | {Startup.FRESH} == set(Startup)
