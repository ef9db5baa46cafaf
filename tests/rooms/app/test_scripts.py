"""The process of scripts belongs to the configuration that has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from queryflux.app.activation import Activation
from queryflux.config.clusters import ClusterConfig, ClusterVariant
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.routers import PythonRouter
from queryflux.config.scripts import ScriptConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.translation import TranslationConfig
from queryflux.fleet.snapshot import build, read
from queryflux.model.errors import ConfigError
from queryflux.pipeline.generation import Generation
from queryflux.runtime.clock import SystemClock

pytest.importorskip("duckdb", reason="DuckDB is not installed")

FIX = "def transform(sql, src, dst): return sql"
ROUTE = PythonRouter(script="def route(query, ctx): return 'pool'")
PLAIN = Snapshot(
    clusters={"one": ClusterConfig(engine="duckDb")},
    cluster_groups={
        "pool": ClusterGroupConfig(members=("one",)),
        "fixed": ClusterGroupConfig(members=("one",), translation_scripts=("named",)),
    },
    scripts={"named": ScriptConfig(kind="translation_fixup", body=FIX)},
    routers=(ROUTE,),
)


class Following:
    """A worker's side of activation: documents come, generations are used."""

    def __init__(self) -> None:
        self.used: list[Generation] = []
        self.activation = Activation(ProcessConfig(), Snapshot(), SystemClock(), self.used.append)
        self.sequence = 0

    async def receive(self, snapshot: Snapshot) -> Generation:
        """One comes as a control plane sends it."""
        self.sequence += 1
        _, data = build(snapshot, epoch="e", sequence=self.sequence, generated_at=0, confirmed_at=0)
        (await self.activation.prepare_received(read(data)))()
        return self.used[-1]


@asynccontextmanager
async def following() -> AsyncIterator[Following]:
    made = Following()
    try:
        yield made
    finally:
        for generation in made.used:
            await generation.close()


async def test_scripts_travel_and_keep_their_process_while_they_stay_the_same() -> None:
    async with following() as worker:
        first = await worker.receive(PLAIN)
        assert first.scripts is not None
        assert first.chain.asks
        pid = first.scripts.pid
        assert pid is not None
        pools = {"spare": ClusterGroupConfig(members=("one",)), **PLAIN.cluster_groups}
        second = await worker.receive(replace(PLAIN, cluster_groups=pools))
        assert second.scripts is first.scripts
        assert second.groups["fixed"].fix_ups is first.groups["fixed"].fix_ups
        assert second.groups["spare"].fix_ups is None
        assert second.scripts.pid == pid
        third = await worker.receive(replace(PLAIN, translation=TranslationConfig(python_scripts=(FIX,))))
        assert third.scripts is not first.scripts
        assert third.groups["pool"].fix_ups is not None
        assert third.groups["fixed"].fix_ups is not None
        assert third.groups["fixed"].fix_ups.numbers == (1, 2)
    assert all(one.scripts is not None and one.scripts.pid is None for one in worker.used)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            replace(PLAIN, routers=(PythonRouter(script="\nimport nothing_at_all"),)),
            "routers[0].script: line 2",
        ),
        (
            replace(PLAIN, translation=TranslationConfig(python_scripts=("(",))),
            "translation.pythonScripts[0]",
        ),
        (
            replace(PLAIN, scripts={"named": ScriptConfig(kind="translation_fixup", body="x = 1")}),
            "scripts.named.body: it defines no function transform",
        ),
    ],
)
async def test_one_that_does_not_compile_rejects_the_whole_and_changes_nothing(
    broken: Snapshot, said: str
) -> None:
    async with following() as worker:
        first = await worker.receive(PLAIN)
        assert first.scripts is not None
        pid = first.scripts.pid
        with pytest.raises(ConfigError) as caught:
            await worker.receive(broken)
        assert said in str(caught.value)
        assert worker.used == [first]
        assert first.scripts.pid == pid
        assert await first.scripts.call(0, "q", {}) == "pool"


async def test_without_scripts_there_is_no_process_and_nothing_to_ask() -> None:
    groups = {"pool": ClusterGroupConfig(members=("one",))}
    async with following() as worker:
        plain = await worker.receive(replace(PLAIN, cluster_groups=groups, scripts={}, routers=()))
        assert plain.scripts is None
        assert not plain.chain.asks
        assert not plain.fixes


async def test_variants_come_as_clusters() -> None:
    cluster = ClusterConfig(engine="duckDb", variants=(ClusterVariant(name="a", max_running_queries=3),))
    groups = {"pool": ClusterGroupConfig(members=("one::a",))}
    async with following() as worker:
        made = await worker.receive(Snapshot(clusters={"one": cluster}, cluster_groups=groups))
        assert list(made.clusters) == ["one::a"]
        assert made.clusters["one::a"].member.limit == 3
