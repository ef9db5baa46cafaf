"""When members are probed."""

import pytest

from queryflux.model.errors import EngineUnavailable
from queryflux.pipeline.health import PROBE_INTERVAL_SECS
from tests.kit.clock import settle
from tests.kit.pipelines import bench
from tests.kit.scripted import ScriptedEngine


@pytest.mark.parametrize("down", [False, True])
async def test_members_that_came_together_are_not_probed_together_for_ever(down: bool) -> None:
    engines = [ScriptedEngine(f"e{number}") for number in range(40)]
    for engine in engines:
        engine.probe_error = EngineUnavailable("connection refused") if down else None
    table = bench(*engines)
    await settle()
    await table.clock.advance(4 * PROBE_INTERVAL_SECS)
    at_once = []
    for _ in range(2 * int(PROBE_INTERVAL_SECS)):
        before = sum(engine.probes for engine in engines)
        await table.clock.advance(0.5)
        at_once.append(sum(engine.probes for engine in engines) - before)
    assert sum(at_once) >= len(engines), "each is probed within the interval"
    assert max(at_once) < len(engines) / 2
