"""The pool, with connections that are none."""

import asyncio
from dataclasses import dataclass

import pytest

from queryflux.engines.postgres.pool import CHECK_AFTER, IDLE_LIMIT, WAIT_LIMIT, Pool
from queryflux.engines.postgres.settings import Settings
from queryflux.model.errors import EngineUnavailable
from tests.kit.clock import ManualClock


@dataclass(eq=False)
class Line:
    """A connection for the pool."""

    name: int
    settings: Settings | None = ()
    idle_since: float = 0.0
    broken: bool = False
    pinned: bool = False
    gone: bool = False
    noise: bool = False
    closed: bool = False

    @property
    def usable(self) -> bool:
        return not (self.broken or self.pinned)

    def disturbed(self) -> bool:
        return self.noise

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Lines:
    """Opens them, unless the server is down or slow."""

    def __init__(self) -> None:
        self.made: list[Line] = []
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self) -> Line:
        await self.gate.wait()
        if self.down:
            raise EngineUnavailable("down")
        self.made.append(Line(len(self.made)))
        return self.made[-1]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def pool(lines: Lines, clock: ManualClock) -> Pool[Line]:
    return Pool("here", 2, lines.open, clock)


async def test_the_one_used_last_comes_first(pool: Pool[Line]) -> None:
    assert pool.take(()) is None
    a, b = await pool.acquire(()), await pool.acquire(())
    pool.give(a)
    pool.give(b)
    assert pool.take(()) is b
    assert pool.take(()) is a
    assert pool.take(()) is None
    assert pool.count == 2


async def test_the_last_one_at_once(pool: Pool[Line], clock: ManualClock) -> None:
    own: Settings = ()
    assert pool.ready(own) is None
    a = await pool.acquire(own)
    a.settings = own
    pool.back(a)
    assert pool.ready((("TimeZone", "UTC"),)) is None
    assert pool.ready(own) is a
    pool.back(a)
    a.gone = True
    assert pool.ready(own) is None
    a.gone = False
    await clock.advance(CHECK_AFTER)
    assert pool.ready(own) is None
    assert pool.take(own) is a


async def test_one_that_comes_back_at_once(pool: Pool[Line], clock: ManualClock) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    waiting = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.back(a)
    assert await waiting is a
    a.gone = a.broken = True
    pool.back(a)
    assert a.closed
    assert pool.count == 1
    pool.close()
    pool.back(b)
    assert b.closed
    assert pool.count == 0


async def test_equal_settings_are_preferred(pool: Pool[Line]) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    a.settings = (("TimeZone", "UTC"),)
    pool.give(a)
    pool.give(b)
    assert pool.take((("TimeZone", "UTC"),)) is a
    assert pool.take((("TimeZone", "UTC"),)) is b


async def test_waiters_are_served_in_order(pool: Pool[Line]) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    waiting = [asyncio.create_task(pool.acquire(())) for _ in range(3)]
    await asyncio.sleep(0)
    pool.give(a)
    assert await waiting[0] is a
    assert not waiting[1].done()
    pool.give(b)
    assert await waiting[1] is b
    pool.give(a)
    assert await waiting[2] is a
    pool.give(a)
    pool.give(b)
    assert (pool.idle, pool.count) == (2, 2)


async def test_a_waiter_may_open_where_one_was_dropped(pool: Pool[Line], lines: Lines) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    waiting = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    a.broken = True
    pool.give(a)
    assert a.closed
    c = await waiting
    assert c is lines.made[2]
    assert pool.count == 2
    pool.give(b)
    pool.give(c)


async def test_a_waiter_who_leaves_loses_nothing(pool: Pool[Line]) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    first, second = (asyncio.create_task(pool.acquire(())) for _ in range(2))
    await asyncio.sleep(0)
    pool.give(a)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is a
    third = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.drop(b)
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert pool.count == 1


async def test_who_waits_too_long_is_told_why(pool: Pool[Line], clock: ManualClock) -> None:
    await pool.acquire(())
    await pool.acquire(())
    waiting = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    await clock.advance(WAIT_LIMIT)
    with pytest.raises(EngineUnavailable, match="All 2 connections"):
        await waiting
    assert clock.pending == 0


async def test_a_server_that_is_down_leaves_room(pool: Pool[Line], lines: Lines) -> None:
    lines.down = True
    for _ in range(5):
        with pytest.raises(EngineUnavailable):
            await pool.acquire(())
    assert pool.count == 0
    lines.gate.clear()
    opening = [asyncio.create_task(pool.acquire(())) for _ in range(3)]
    await asyncio.sleep(0)
    lines.gate.set()
    for task in opening:
        with pytest.raises(EngineUnavailable):
            await task
    assert pool.count == 0


async def test_idle_connections_that_are_no_good_are_left_out(
    pool: Pool[Line], clock: ManualClock, lines: Lines
) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    pool.give(a)
    pool.give(b)
    b.noise = True
    await clock.advance(1)
    assert pool.take(()) is a
    assert b.closed
    pool.give(a)
    await clock.advance(IDLE_LIMIT)
    assert pool.take(()) is None
    assert a.closed
    assert pool.count == 0


async def test_a_closed_pool(pool: Pool[Line], lines: Lines) -> None:
    a, b = await pool.acquire(()), await pool.acquire(())
    waiting = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.give(a)
    assert await waiting is a
    waiting = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(EngineUnavailable):
        await waiting
    with pytest.raises(EngineUnavailable):
        await pool.acquire(())
    pool.give(a)
    pool.give(b)
    assert a.closed
    assert b.closed
    assert pool.count == 0


async def test_a_pool_that_closes_while_one_is_opened(pool: Pool[Line], lines: Lines) -> None:
    lines.gate.clear()
    opening = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.close()
    lines.gate.set()
    with pytest.raises(EngineUnavailable):
        await opening
    assert lines.made[0].closed
    assert pool.count == 0


async def test_what_was_acquired_for_somebody_who_has_gone_comes_back(pool: Pool[Line], lines: Lines) -> None:
    done = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.keep(done)
    line = await pool.acquire(())
    assert lines.made == [line]
    lines.gate.clear()
    opening = asyncio.create_task(pool.acquire(()))
    await asyncio.sleep(0)
    pool.keep(opening)
    await asyncio.gather(opening, return_exceptions=True)
    pool.give(line)
    assert (pool.count, pool.idle) == (1, 1)
