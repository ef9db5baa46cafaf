"""Listening for notices: connections that break, or are cut without a word, are made again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from queryflux.model.errors import StoreUnavailable
from queryflux.persistence.postgres import listening
from queryflux.persistence.postgres.listening import SILENCE_SECS, Listening
from tests.kit.clock import ManualClock, settle


class Wire:
    """One connection, as the driver shows it."""

    def __init__(self, answers: bool) -> None:
        self._answers = answers
        self._closed = False
        self.asked = 0
        self.notify: Callable[..., None] = lambda *_: None
        self._ended: Callable[[object], None] = lambda _: None

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        assert channel == "news"
        self.notify = callback

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        self._ended = callback

    def is_closed(self) -> bool:
        return self._closed

    def cut(self) -> None:
        self._closed = True
        self._ended(self)

    async def fetchval(self, sql: str, timeout: float) -> int:
        self.asked += 1
        if not self._answers:
            raise TimeoutError
        return 1


class Town:
    """A server; each connection answers or, like behind a firewall that forgot it, never does."""

    def __init__(self, *answers: bool) -> None:
        self.clock = ManualClock()
        self.wires: list[Wire] = []
        self.down = False
        self.attempts = 0
        self._answers = list(answers)
        self.heard = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Wire]:
        self.attempts += 1
        if self.down:
            raise StoreUnavailable("cannot be reached")
        wire = Wire(self._answers.pop(0) if self._answers else True)
        self.wires.append(wire)
        try:
            yield wire
        except TimeoutError:
            raise StoreUnavailable("no answer") from None

    def listen(self) -> "asyncio.Task[None]":
        async def count() -> None:
            async for _ in Listening(self.connect, "news", self.clock).notices():
                self.heard += 1

        return asyncio.ensure_future(count())


async def test_notices_that_come_together_are_one() -> None:
    town = Town()
    task = town.listen()
    await settle()
    assert town.heard == 1  # a new connection
    town.wires[0].notify("news")
    town.wires[0].notify("news")
    await settle()
    assert town.heard == 2
    task.cancel()


async def test_a_connection_that_breaks_is_made_again_and_counts_as_a_notice() -> None:
    town = Town()
    task = town.listen()
    await settle()
    town.wires[0].cut()
    await town.clock.advance(2)
    assert (len(town.wires), town.heard) == (2, 2)
    task.cancel()


async def test_after_the_longest_outage_it_listens_again_within_two_seconds() -> None:
    town = Town()
    town.down = True
    task = town.listen()
    await town.clock.advance(600)
    assert 300 <= town.attempts <= 601, "a pause is half as long at least"
    town.down = False
    await town.clock.advance(2)
    assert town.heard == 1
    task.cancel()


async def test_processes_do_not_try_at_the_same_moments() -> None:
    towns = [Town(), Town()]
    tasks = []
    for town in towns:
        town.down = True
        tasks.append(town.listen())
    await settle()
    moments: list[list[float]] = [[], []]
    for _ in range(100):
        for town, seen in zip(towns, moments, strict=True):
            before = town.attempts
            await town.clock.advance(0.1)
            seen += [town.clock.monotonic()] * (town.attempts - before)
    assert moments[0] != moments[1]
    for task in tasks:
        task.cancel()


async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "ANSWER_SECS", 0.01)
    town = Town()

    async def silent(wire: Wire, channel: str, callback: Callable[..., None]) -> None:
        if len(town.wires) == 1:
            await asyncio.Event().wait()

    monkeypatch.setattr(Wire, "add_listener", silent)
    task = town.listen()
    await asyncio.sleep(0.1)
    await town.clock.advance(2)
    assert (len(town.wires), town.heard) == (2, 1)
    task.cancel()


async def test_a_connection_that_only_looks_alive_is_found_out() -> None:
    town = Town(False, True)
    task = town.listen()
    await town.clock.advance(SILENCE_SECS + 2)
    assert (len(town.wires), town.heard) == (2, 2)
    task.cancel()


async def test_silence_is_no_notice() -> None:
    town = Town()
    task = town.listen()
    await town.clock.advance(SILENCE_SECS * 10)
    assert (len(town.wires), town.heard) == (1, 1)
    assert town.wires[0].asked == 10
    task.cancel()


async def test_a_fault_of_the_driver_does_not_end_it() -> None:
    town = Town()
    task = town.listen()
    await settle()

    async def broken(sql: str, timeout: float) -> int:
        raise AssertionError("cannot switch state")

    town.wires[0].fetchval = broken  # type: ignore[method-assign]
    await town.clock.advance(SILENCE_SECS + 2)
    assert (len(town.wires), town.heard) == (2, 2)
    task.cancel()
