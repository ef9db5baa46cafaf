"""Threads of one's own, and groups of tasks: order, failures, and nothing left at the end."""

import asyncio
import logging
import threading

import pytest

from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.threads import LaneThread


async def test_calls_run_in_order_in_one_thread_that_ends() -> None:
    before = threading.active_count()
    lane = LaneThread("lane")
    seen: list[int] = []

    def note(number: int) -> str:
        seen.append(number)
        return threading.current_thread().name

    names = await asyncio.gather(*(lane.run(note, number) for number in range(10)))
    assert seen == list(range(10))
    assert set(names) == {"lane"}
    await lane.join()
    assert threading.active_count() == before


async def test_an_error_reaches_the_waiter() -> None:
    lane = LaneThread("lane")
    with pytest.raises(ZeroDivisionError):
        await lane.run(lambda: 1 / 0)
    assert await lane.run(lambda: 2) == 2
    await lane.join()


async def test_a_waiter_that_leaves_does_not_stop_the_call() -> None:
    lane = LaneThread("lane")
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        done.set()

    waiting = asyncio.create_task(lane.run(work))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go.set()
    await lane.join()
    assert done.is_set()


async def test_a_closed_lane_takes_no_more() -> None:
    lane = LaneThread("lane")
    lane.close()
    with pytest.raises(RuntimeError):
        lane.submit(int)
    await lane.join()


async def test_closing_a_group_ends_its_tasks() -> None:
    group = TaskGroup("group")
    tasks = [group.spawn(str(n), asyncio.sleep(1000)) for n in range(3)]
    await group.close()
    assert all(task.cancelled() for task in tasks)
    assert len(group) == 0
    with pytest.raises(RuntimeError):
        group.spawn("late", asyncio.sleep(0))


async def test_a_failure_is_logged_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("boom")

    group = TaskGroup("group")
    with caplog.at_level(logging.ERROR):
        group.spawn("task", fail())
        await group.wait()
    assert "group/task" in caplog.text
    assert "boom" in caplog.text
