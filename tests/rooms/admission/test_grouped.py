"""Asks that travel together."""

import pytest

from queryflux.admission.grouped import GroupedAcquires, Verdict
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import Wanted
from queryflux.runtime.tasks import TaskGroup
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics


async def test_a_fault_of_who_asked_keeps_nobody_else_from_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, tasks = ManualClock(), TaskGroup("test")
    acquires = GroupedAcquires(MemoryCapacityStore(Ledger(clock), "one"), clock, tasks, NoMetrics(), 5.0)
    told: list[str] = []

    def fails(verdict: Verdict, why: str) -> None:
        raise RuntimeError("a fault of ours")

    def told_of(name: str) -> None:
        acquires.ask("c", Wanted(name, 9), lambda verdict, why: told.append(f"{name} {verdict.name}"))

    for name in ("a", "b"):
        acquires.ask("c", Wanted(f"bad {name}", 9), fails)
        told_of(name)
    await settle(50)
    told_of("later")
    await settle(50)
    assert told == ["a GRANTED", "b GRANTED", "later GRANTED"]
    assert "what query bad a did with its lease failed" in caplog.text
    await tasks.close()
