"""Handles: bounded, owned, forgotten."""

import pytest

from queryflux.frontends.flight_sql.handles import Handles, Limits
from queryflux.model.errors import AccessDenied, ProtocolViolation, QueryNotFound, Unavailable
from tests.kit.clock import ManualClock
from tests.kit.pipelines import identity

ANNE, BOB = identity("anne"), identity("bob")


def handles(most: int = 3, most_bytes: int = 100) -> tuple[Handles[str], ManualClock]:
    clock = ManualClock()
    return Handles("ticket", Limits(most, most_bytes, 300), clock, "abcde"), clock


async def test_a_handle_is_used_up_by_take_and_kept_by_get() -> None:
    live, _ = handles()
    handle = live.add(ANNE, "value")
    assert handle.endswith(b"_abcde")
    assert live.get(handle, ANNE) == "value"
    assert live.take(handle, ANNE) == "value"
    with pytest.raises(QueryNotFound):
        live.take(handle, ANNE)


async def test_a_handle_belongs_to_its_owner() -> None:
    live, _ = handles()
    handle = live.add(ANNE, "value")
    for ask in (live.get, live.take):
        with pytest.raises(AccessDenied):
            ask(handle, BOB)
    assert live.take(handle, ANNE) == "value"


async def test_a_handle_lives_as_long_as_it_is_used() -> None:
    live, clock = handles()
    used, idle = live.add(ANNE, "used"), live.add(ANNE, "idle")
    await clock.advance(200)
    live.get(used, ANNE)
    await clock.advance(200)
    with pytest.raises(QueryNotFound, match="older than 300 s"):
        live.get(idle, ANNE)
    assert live.expired() == ["idle"]
    assert live.get(used, ANNE) == "used"
    await clock.advance(301)
    assert live.expired(busy=lambda value: value == "used") == []
    assert live.get(used, ANNE) == "used"
    assert live.clear() == ["used"]


def test_handles_and_what_they_hold_are_bounded() -> None:
    live, _ = handles(most=2, most_bytes=10)
    first = live.add(ANNE, "a", 6)
    with pytest.raises(Unavailable):
        live.add(ANNE, "b", 5)
    live.add(ANNE, "c", 4)
    with pytest.raises(Unavailable):
        live.add(ANNE, "d", 0)
    live.take(first, ANNE)
    live.add(ANNE, "e", 6)
    assert len(live) == 2


def test_what_a_handle_holds_may_grow_within_the_bound() -> None:
    live, _ = handles(most_bytes=10)
    handle = live.add(ANNE, "a", 2)
    live.grow(handle, ANNE, 8)
    with pytest.raises(Unavailable):
        live.grow(handle, ANNE, 1)
    live.grow(handle, ANNE, -4)
    live.add(ANNE, "b", 4)
    live.take(handle, ANNE)
    live.add(ANNE, "c", 6)


@pytest.mark.parametrize("handle", [b"", b"x", b"\xff\xfe", b"abc_def", b"x" * 1000 + b"_abcde"])
def test_bytes_that_are_no_handle(handle: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        handles()[0].get(handle, ANNE)


def test_a_handle_of_another_process_is_said_to_be_one() -> None:
    with pytest.raises(QueryNotFound, match="another process"):
        handles()[0].get(b"0123456789_fghij", ANNE)
