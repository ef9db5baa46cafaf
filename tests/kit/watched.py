"""QueryFlux in front of a scripted engine: whatever reaches an engine is seen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.port import Engine, EngineRequest
from queryflux.runtime.clock import Clock
from tests.kit.scripted import ScriptedEngine, Step
from tests.kit.serving import Serving, serving

CLUSTERS = """
clusters:
  seen: {engine: duckDb}
clusterGroups:
  main: {members: [seen]}
routingFallback: main
"""


class Watched:
    """A running QueryFlux and the engine behind it."""

    def __init__(self, running: Serving, engine: ScriptedEngine) -> None:
        self.running = running
        self.engine = engine

    def port(self, door: str) -> int:
        """The port of a door."""
        return self.running.port(door)

    @property
    def traces(self) -> tuple[int, int, int]:
        """What a client that got in would leave: statements at the engine, records, conversations."""
        pipeline = self.running.standalone.pipeline
        return len(self.engine.requests), len(self.running.records), len(pipeline._talks)


@contextmanager
def watched(yaml: str, script: Callable[[EngineRequest], Step] | None = None) -> Iterator[Watched]:
    """Serve a configuration whose clusters all are one scripted engine that speaks DuckDB's dialect."""
    engine = ScriptedEngine("seen", script, dialect="duckdb")

    def build(name: str, config: ClusterConfig, clock: Clock) -> Engine:
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("queryflux.app.compile.build_engine", build)
        with serving(yaml) as running:
            yield Watched(running, engine)
