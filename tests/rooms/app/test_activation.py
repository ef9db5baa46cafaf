"""A configuration that is prepared and then not used leaves nothing open."""

import pytest

from queryflux.app import compile as compiling
from queryflux.app.activation import Activation
from queryflux.config.clusters import ClusterConfig
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot
from queryflux.pipeline.generation import Generation
from queryflux.sql.translate import Translator
from tests.kit.clock import ManualClock
from tests.kit.scripted import ScriptedEngine


async def test_engines_built_for_nothing_are_closed_and_those_in_use_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[ScriptedEngine] = []

    def build(name: str, config: ClusterConfig, clock: ManualClock) -> ScriptedEngine:
        built.append(ScriptedEngine(name))
        return built[-1]

    def no_dialect(self: Translator, pairs: object) -> None:
        raise MemoryError

    monkeypatch.setattr(compiling, "build_engine", build)
    used: list[Generation] = []
    clusters = {"one": ClusterConfig(engine="duckDb")}
    groups = {"pool": ClusterGroupConfig(members=("one",))}
    file = Snapshot(clusters=clusters, cluster_groups=groups)
    activation = Activation(ProcessConfig(), file, ManualClock(), used.append)
    (await activation.prepare_file())()
    monkeypatch.setattr(Translator, "warm", no_dialect)
    more = Snapshot(clusters={**clusters, "two": ClusterConfig(engine="duckDb")}, cluster_groups=groups)
    monkeypatch.setattr(activation, "_file", more)
    with pytest.raises(MemoryError):
        await activation.prepare_file()
    assert [(engine.name, engine.closed) for engine in built] == [("one", False), ("two", True)]
    await used[0].close()
