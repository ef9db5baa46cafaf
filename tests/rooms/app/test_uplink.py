"""A worker's uplink as its file has it: when batches go, how many at a time, and what becomes of them."""

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from queryflux.app.history import ProcessHistory
from queryflux.app.uplink import BATCHES, Uplink
from queryflux.config.fleet import HistoryUplinkConfig
from queryflux.config.process import ProcessConfig
from queryflux.fleet.history import Ingested, decode_batch
from queryflux.fleet.paths import HISTORY
from queryflux.history.redaction import Redaction
from queryflux.model.errors import StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.telemetry.prometheus import PrometheusMetrics
from queryflux.worker.client import Caller
from queryflux.worker.port import NO_HEADERS, Reply
from tests.kit.clock import ManualClock, settle
from tests.kit.records import record

CALLER = Caller(Secret("s"), "qf-1", "edge")


class Plane:
    """A control plane that counts what it gets; with ``hold`` it answers when that is set."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.away = False
        self.hold: asyncio.Event | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        assert (method, path) == ("POST", HISTORY)
        if headers.get("content-encoding") == "gzip":
            body = zlib.decompress(body, 31)
        number = len(decode_batch(body).records)
        self.batches.append(number)
        if self.hold is not None:
            await self.hold.wait()
        if self.away:
            raise StoreUnavailable("nobody answers")
        return Reply(200, {}, msgspec.json.encode(Ingested(stored=number, duplicates=0, rejected=0)))


class Bench:
    def __init__(self, **settings: Any) -> None:
        self.clock, self.plane = ManualClock(), Plane()
        self.history = ProcessHistory(ProcessConfig(role="worker"), "qf-1", self.clock, PrometheusMetrics())
        self.history.keep_to(Redaction.NONE)
        self.uplink = Uplink(HistoryUplinkConfig(**settings), self.plane, (), CALLER, self.clock)
        self.uplink.start(self.history)

    def add(self, count: int) -> None:
        for number in range(count):
            self.history.add(record(number, proxy_query_id=f"{self.clock.monotonic()}_{number}"))

    async def sent(self, count: int) -> list[int]:
        """What was sent, once there are so many batches: compression is in a thread."""
        async with asyncio.timeout(10):
            while len(self.plane.batches) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await settle()
        return self.plane.batches


async def test_records_are_sent_every_two_seconds_or_when_a_batch_is_full() -> None:
    bench = Bench()
    bench.add(3)
    await bench.clock.advance(1.9)
    assert bench.plane.batches == []
    await bench.clock.advance(0.1)
    assert await bench.sent(1) == [3]
    bench.add(499)
    await settle()
    assert bench.plane.batches == [3]
    bench.add(2)
    assert sorted(await bench.sent(3)) == [1, 3, 500]
    await bench.history.close(5)


async def test_several_batches_are_on_their_way_and_no_more() -> None:
    bench = Bench(max_batch_records=10)
    bench.plane.hold = asyncio.Event()
    bench.add(100)
    await settle(200)
    assert bench.plane.batches == [10] * BATCHES
    assert bench.uplink.report().waiting == 100
    bench.plane.hold.set()
    assert await bench.sent(10) == [10] * 10
    await settle(100)
    report = bench.uplink.report()
    assert (report.delivered, report.waiting, report.dropped, report.error) == (100, 0, 0, "")
    await bench.history.close(5)


async def test_a_small_buffer_is_sent_before_it_is_full() -> None:
    bench = Bench(max_buffered_records=20)
    for _ in range(10):
        bench.add(10)
        await settle()
    assert sum(await bench.sent(10)) == 100
    assert bench.uplink.report().dropped == 0
    await bench.history.close(5)


async def test_what_is_wrong_is_reported_and_the_oldest_make_room() -> None:
    bench = Bench(max_buffered_records=5)
    bench.plane.away = True
    bench.add(4)
    await bench.clock.advance(2.5)
    bench.add(3)
    report = bench.uplink.report()
    assert (report.waiting, report.dropped, report.error) == (5, 2, "nobody answers")
    bench.plane.away = False
    await bench.clock.advance(10)
    report = bench.uplink.report()
    assert (report.delivered, report.dropped, report.error) == (5, 2, "")
    await bench.history.close(5)
    bench.uplink.close()


async def test_turned_off_it_takes_nothing() -> None:
    bench = Bench(enabled=False)
    bench.add(3)
    assert bench.history.buffer is None
    assert not bench.uplink.report().enabled
    await bench.history.close(5)
