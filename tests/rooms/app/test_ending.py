"""The end of a process: what fails on the way does not cost what comes after it."""

import asyncio
import time

import pytest

from queryflux.app import process as process_module
from queryflux.app.process import QueryProcess
from queryflux.app.standalone import Standalone
from queryflux.app.worker import Worker
from queryflux.config.fleet import ControlPlaneConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.model.secret import Secret

CONTROL = ControlPlaneConfig(url="http://127.0.0.1:1", secret=Secret("x" * 16))


@pytest.mark.parametrize("role", ["standalone", "worker"])
async def test_a_part_that_cannot_be_closed_does_not_cost_the_history(
    role: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process: QueryProcess
    if role == "worker":
        settings = ProcessConfig(role="worker", control_plane=CONTROL)
        process = Worker(RootConfig(queryflux=settings), Snapshot())
    else:
        process = Standalone(RootConfig(), Snapshot())
    closed: list[str] = []

    async def broken() -> None:
        raise RuntimeError("a fault of ours")

    async def close() -> None:
        closed.append("records")

    monkeypatch.setattr(process.pipeline, "close", broken)
    monkeypatch.setattr(process.records, "close", close)
    await process.close()
    assert closed == ["records"]
    assert "closing failed inside QueryFlux" in caplog.text


async def test_a_drain_does_not_wait_for_whom_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ProcessConfig(shutdown_drain_timeout_secs=0.2)
    process = Standalone(RootConfig(queryflux=settings), Snapshot())
    monkeypatch.setattr(process_module, "LEAVE_SECONDS", 0.1)
    events: list[str] = []

    async def leave() -> None:
        events.append("leave")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("given up")

    async def drain(seconds: float) -> bool:
        events.append("drain")
        await asyncio.sleep(seconds)
        return False

    monkeypatch.setattr(process, "_leave", leave)
    monkeypatch.setattr(process.pipeline, "drain", drain)
    began = time.monotonic()
    async with asyncio.timeout(10):
        await process.drain()
    assert sorted(events[:2]) == ["drain", "leave"], "at once, both of them"
    assert events[2:] == ["given up"]
    assert time.monotonic() - began < 2
    await process.close()


async def test_who_is_told_of_a_drain_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process = Standalone(RootConfig(), Snapshot())
    told: list[bool] = []

    async def leave() -> None:
        await asyncio.sleep(0.05)
        told.append(True)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(process, "_leave", leave)
    await process.drain()
    assert told
    assert "taking leave failed inside QueryFlux" in caplog.text
    await process.close()


async def test_leases_and_records_wait_for_the_database_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Standalone(RootConfig(), Snapshot())
    both: list[str] = []
    met = asyncio.Event()

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            both.append(self.name)
            if len(both) == 2:
                met.set()
            await met.wait()

    monkeypatch.setattr(process, "capacity", Part("leases"))
    monkeypatch.setattr(process.records, "close", Part("records").close)
    async with asyncio.timeout(5):
        await process.close()
    assert sorted(both) == ["leases", "records"]
