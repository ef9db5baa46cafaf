"""R1: a reload with 2,000 clusters in PostgreSQL: how long it takes, and how long it holds up the event loop.

One cluster is edited; the reload reads everything, checks everything, compiles and swaps. The engines are
scripted ones, whose probes cost nothing.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import uvloop
from msgspec.structs import replace

from bench.result import Result
from queryflux.app.activation import Activation
from queryflux.app.serve import spare_the_collector
from queryflux.config.clusters import ClusterConfig, EngineAuth
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.routers import HeaderRouter
from queryflux.config.rows import updated
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore
from queryflux.controlplane.reload import Reloader
from queryflux.model.ids import QueryIds
from queryflux.model.secret import Secret
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.runtime.clock import Clock, SystemClock
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.config_stores import open_postgres
from tests.kit.databases import DATABASES, new_database
from tests.kit.pipelines import LineKeeper, OpenHistory
from tests.kit.scripted import ScriptedEngine

ID = "R1"
TITLE = "a reload with 2,000 clusters in PostgreSQL"
CLUSTERS = 2000
GROUPS = 200
RELOADS = 9


def configuration() -> Snapshot:
    """Clusters with credentials, ten to a group, and a rule for each group."""
    auth = EngineAuth(type="basic", username="svc", password=Secret("correct horse"))
    clusters = {
        f"c{number}": ClusterConfig(engine="postgres", endpoint=f"db{number}:5432", auth=auth)
        for number in range(CLUSTERS)
    }
    names = list(clusters)
    size = CLUSTERS // GROUPS
    groups = {
        f"g{number}": ClusterGroupConfig(
            members=tuple(names[number * size : (number + 1) * size]), max_running_queries=10
        )
        for number in range(GROUPS)
    }
    router = HeaderRouter(header_name="X-Team", header_value_to_group={name: name for name in groups})
    return Snapshot(clusters=clusters, cluster_groups=groups, routers=(router,), routing_fallback="g0")


class Ticker:
    """Notes the longest time for which the loop did nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest = max(self.longest, now - before)
            before = now


@contextmanager
def scripted() -> Iterator[None]:
    """Engines that cost nothing."""

    def build(name: str, config: ClusterConfig, clock: Clock) -> ScriptedEngine:
        return ScriptedEngine(name)

    with patch("queryflux.app.compile.build_engine", build):
        yield


def make_pipeline(clock: Clock, metrics: PrometheusMetrics) -> QueryPipeline:
    """One without clients."""
    recorder = Recorder(OpenHistory(10), LineKeeper(), metrics, clock)
    return QueryPipeline(clock=clock, metrics=metrics, recorder=recorder, ids=QueryIds("bench", clock.now))


async def measure(store: ConfigStore) -> dict[str, float]:
    """Times in ms."""
    clock, metrics, file = SystemClock(), PrometheusMetrics(), configuration()
    pipeline = make_pipeline(clock, metrics)
    activation = Activation(ProcessConfig(), file, clock, pipeline.activate)
    reloader = Reloader(store, activation.prepare, clock=clock, metrics=metrics, interval_secs=0)
    began = time.perf_counter()
    stored = await store.seed(file)
    seeded = time.perf_counter()
    reloader.begin(stored, await activation.prepare(stored), clock.monotonic())
    ready = time.perf_counter()
    spare_the_collector()  # as a serving process does
    took, held, loads = [], [], []
    for number in range(RELOADS):
        await asyncio.sleep(0.5)
        stored = await store.load()
        edited = replace(file.clusters["c7"], max_running_queries=number)
        changed = replace(file, clusters={**file.clusters, "c7": edited})
        await store.save(stored, updated(stored.tables, changed, {"clusters"}))
        ticker = Ticker()
        ticking = asyncio.create_task(ticker.run())
        await asyncio.sleep(0)
        start = time.perf_counter()
        assert await reloader.apply() == ""
        took.append((time.perf_counter() - start) * 1000)
        await asyncio.sleep(0)  # the swap was the last step: it counts too
        ticking.cancel()
        held.append(ticker.longest * 1000)
        start = time.perf_counter()
        await store.load()
        loads.append((time.perf_counter() - start) * 1000)
    await reloader.close()
    await pipeline.close()
    return {
        "seed_ms": (seeded - began) * 1000,
        "first_ms": (ready - seeded) * 1000,
        "reload_ms_median": statistics.median(took),
        "reload_ms_max": max(took),
        "of_which_load_ms_median": statistics.median(loads),
        "loop_held_ms_median": statistics.median(held),
        "loop_held_ms_max": max(held),
    }


async def against_postgres() -> dict[str, float]:
    """On the first server there is."""
    with new_database(DATABASES[0]) as database:
        async with open_postgres(database) as store:
            return await measure(store)


def run() -> Result:
    """The figures."""
    with scripted():
        figures = uvloop.run(against_postgres())
    return Result(figures={name: round(value, 1) for name, value in figures.items()})
