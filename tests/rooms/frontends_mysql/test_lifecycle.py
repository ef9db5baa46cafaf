"""Slow clients, draining, closing, and that nothing is left of a connection."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from queryflux.frontends.mysql.numbers import ConnectionIds, process_number
from queryflux.model.endings import EndReason
from tests.kit.clock import ManualClock
from tests.kit.scripted import Step
from tests.rooms.frontends_mysql.fake import house
from tests.rooms.frontends_mysql.raw import RawClient, error_number
from tests.rooms.frontends_mysql.test_statements import until


async def advance(clock: ManualClock, seconds: int, done: Callable[[], object]) -> None:
    """Move the clock a second at a time until something holds, and say so if it never does."""
    for _ in range(seconds):
        await clock.advance(1)
        await asyncio.sleep(0.001)
        if done():
            return
    raise AssertionError(f"not within {seconds} seconds")


async def test_an_idle_client_is_cut_after_wait_timeout() -> None:
    clock = ManualClock()
    async with house(clock=clock) as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("SET wait_timeout = 5")
        await clock.advance(4)
        assert (await client.command(b"\x0e"))[0] == 0
        await advance(clock, 8, lambda: place.pipeline.open == 0)
        assert await client.at_end()


async def test_a_client_that_sends_a_byte_a_second_is_cut() -> None:
    clock = ManualClock()
    async with house(clock=clock) as place, RawClient(place.port) as client:
        await client.log_in()

        seconds = 0
        for byte in b"\x40\0\0\0\x03" + b"x" * 60:
            client.send_bytes(bytes((byte,)))
            await asyncio.sleep(0.001)
            if place.pipeline.open == 0:
                break
            seconds += 1
            await clock.advance(1)
        assert 29 <= seconds <= 33


async def test_a_client_that_reads_nothing_is_cut_and_its_query_ends() -> None:
    clock = ManualClock()
    table = pa.table({"s": ["x" * 100_000] * 400})
    async with house(clock=clock, steps={"q": Step(table=table, rows_per_batch=10)}) as place:
        async with RawClient(place.port) as client:
            await client.log_in()
            client.sequence = 0
            client.send_bytes(b"\x02\0\0\0\x03q")
            await until(lambda: place.engine.running)
            await advance(clock, 200, lambda: place.pipeline.open == 0)
        assert place.pipeline.endings == [("q", EndReason.CLIENT_GONE)]


async def test_a_client_that_never_answers_the_greeting_is_told_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with house() as place, RawClient(place.port) as client:
        place.door.listener.handshake_seconds = 0.01
        async with RawClient(place.port) as slow:
            await slow.greeting()
            assert error_number(await slow.receive()) == 1159
            assert await slow.at_end()
        assert (await client.greeting())[0] == 10


async def test_draining_closes_idle_clients_and_lets_others_finish() -> None:
    gate = asyncio.Event()
    script = {"slow": Step(gate=gate)}
    async with (
        house(steps=script) as place,
        RawClient(place.port) as idle,
        RawClient(place.port) as busy,
        RawClient(place.port) as open_transaction,
    ):
        for client in (idle, busy, open_transaction):
            await client.log_in()
        await open_transaction.query("BEGIN")
        await open_transaction.query("SELECT 1")
        task = asyncio.create_task(busy.query("slow"))
        await until(lambda: place.engine.running == 1)
        place.door.stop_accepting()
        assert await idle.at_end()
        gate.set()
        assert (await task)[0] == b"\1"
        assert await busy.at_end()
        assert (await open_transaction.query("COMMIT"))[0][0] == 0
        assert await open_transaction.at_end()
        with pytest.raises(ConnectionError):
            await RawClient(place.port).__aenter__()


async def test_closing_cuts_what_is_left() -> None:
    async with house(steps={"slow": Step(gate=asyncio.Event())}) as place, RawClient(place.port) as client:
        await client.log_in()
        client.sequence = 0
        client.send(b"\x03slow")
        await until(lambda: place.engine.running == 1)
        await place.door.close(0.01)
        assert await client.at_end()
        assert place.pipeline.endings == [("slow", EndReason.SHUTDOWN)]


async def test_nothing_is_left() -> None:
    table = pa.table({"n": list(range(5_000)), "m": list(range(5_000))})
    before = set(threading.enumerate())
    async with house(steps={"q": Step(table=table, rows_per_batch=5_000)}) as place:
        for index in range(10):
            async with RawClient(place.port) as client:
                await client.log_in()
                if index % 2:
                    await client.query("q")
                else:
                    await client.command(b"\x03q")
        await until(lambda: place.pipeline.open == 0)
        assert len(place.door.tasks) == 0
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()
    assert len(asyncio.all_tasks()) == 1


def test_connection_ids_come_round_and_skip_those_in_use() -> None:
    ids = ConnectionIds("k3f9z")
    first = ids.next(lambda number: False)
    assert first >> 20 == process_number("k3f9z")
    ids._last = (1 << 20) - 2
    assert ids.next(lambda number: False) & 0xFFFFF == (1 << 20) - 1
    assert ids.next(lambda number: number == first) == first + 1
    assert process_number("k3f9z") != process_number("zzzzz")


def test_the_door_alone_loads_nothing_heavy() -> None:
    code = (
        "import sys, queryflux.frontends.mysql.door;"
        "print(*({'pyarrow', 'numpy', 'sqlglot', 'duckdb', 'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
