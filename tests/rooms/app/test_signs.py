"""How long a parent bears with workers that say nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from queryflux.app.signs import Attention, Patience, Signs
from tests.kit.clock import ManualClock

PATIENCE = Patience(sign=2, silent=15, dead=60, last=5)


class Leaping(ManualClock):
    """One that goes on while this process is stopped."""

    leap = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.leap


class Watched:
    """One worker, and who looks at it."""

    def __init__(self) -> None:
        self.clock = Leaping()
        self.attention = Attention(PATIENCE, self.clock)
        self.kills = 0
        self.signs = Signs("w-1", 0.0, self.kill)
        self.paying = asyncio.ensure_future(self.attention.pay(lambda: [self.signs]))

    def kill(self) -> None:
        self.kills += 1

    async def live(self, seconds: int) -> None:
        """It is well for so long."""
        for _ in range(seconds // 2):
            await self.clock.advance(2)
            self.attention.hear(self.signs)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    yield made
    made.paying.cancel()


async def test_one_that_lives_is_left_alone(watched: Watched) -> None:
    await watched.live(200)
    assert (watched.kills, watched.signs.silent) == (0, False)


async def test_one_that_is_silent_is_not_ready_and_later_killed_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    await watched.live(10)
    await watched.clock.advance(14)
    assert not watched.signs.silent
    await watched.clock.advance(2)
    assert (watched.kills, watched.signs.silent) == (0, True)
    await watched.clock.advance(43)
    assert watched.kills == 0
    await watched.clock.advance(200)
    assert watched.kills == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


async def test_one_that_is_heard_of_again_is_as_before(watched: Watched) -> None:
    await watched.clock.advance(50)
    before = watched.signs.silent
    watched.attention.hear(watched.signs)
    assert (before, watched.signs.silent) == (True, False)
    await watched.clock.advance(50)
    assert watched.kills == 0


async def test_what_was_not_heard_while_the_parent_was_stopped_does_not_count(watched: Watched) -> None:
    await watched.live(10)
    watched.clock.leap += 3600
    await watched.clock.advance(10)
    assert (watched.kills, watched.signs.silent) == (0, False)
    await watched.clock.advance(60)
    assert watched.kills == 1


async def test_at_the_end_less_is_borne_with_but_not_before_the_drain_is_over(watched: Watched) -> None:
    watched.attention.ending(30)
    await watched.clock.advance(29)
    assert watched.kills == 0
    await watched.clock.advance(2)
    assert watched.kills == 1


async def test_one_that_has_said_its_last_is_waited_for_by_others(watched: Watched) -> None:
    watched.signs.over = True
    await watched.clock.advance(100)
    assert watched.kills == 0
