"""Edits through the configuration service over every kind of store: what two operators of one store see."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from queryflux.config.listeners import AdminApiConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore
from queryflux.config.tables import ClusterRow
from queryflux.controlplane.config_service import ConfigService, Rules
from queryflux.controlplane.errors import Changed, InUse, NotServed
from queryflux.controlplane.login import Caller, Login
from queryflux.model.errors import AuthenticationFailed
from queryflux.routing.regex import check_regex
from tests.kit.clock import ManualClock
from tests.kit.config_stores import STORES, Place, open_store, place_of
from tests.kit.operators import FILE
from tests.rooms.config.reading import load

HERE = Caller("127.0.0.1", "localhost", forwarded=False)


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Iterator[Place]:
    with place_of(kind, tmp_path) as place:
        yield place


@pytest.fixture
async def stores(kind: str, place: Place) -> AsyncIterator[tuple[ConfigStore, ConfigStore]]:
    """The store of two processes; where only one can have it, the same twice."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_store(kind, place))
        both = kind not in ("memory", "sqlite")
        other = await stack.enter_async_context(open_store(kind, place)) if both else one
        yield one, other


async def applied() -> str:
    return ""


def service(store: ConfigStore, file: Snapshot) -> ConfigService:
    rules = Rules(ProcessConfig(), check_regex, lambda text: None)
    return ConfigService(store, file, rules, durable=True, apply=applied)


async def test_what_one_edits_the_other_sees(stores: tuple[ConfigStore, ConfigStore]) -> None:
    file = load(FILE).snapshot
    await stores[0].seed(file)
    one, other = service(stores[0], file), service(stores[1], file)
    before = (await other.current()).shown
    await one.patch_cluster("east", {"maxRunningQueries": 7}, "west")
    await one.patch_group("bi", {"maxQueuedQueries": 3}, "day")
    await one.put_setting("translation", {"mode": "bestEffort", "errorOnUnsupported": True})
    seen = await other.current()
    assert seen.clear == (await one.current()).clear
    assert seen.clear["clusters"]["west"] == {
        **before["clusters"]["east"],
        "maxRunningQueries": 7,
        "auth": {"type": "basic", "username": "svc", "password": "s3cr3t-1"},
    }
    assert seen.clear["clusterGroups"]["day"]["members"] == ["west", "files"]
    assert (seen.clear["routingFallback"], seen.clear["routers"][0]["userToGroup"]) == ("day", {"ann": "day"})
    assert seen.clear["translation"] == {"errorOnUnsupported": True}
    with pytest.raises(InUse):
        await other.delete_group("day")


async def test_a_renamed_row_is_the_same_row(stores: tuple[ConfigStore, ConfigStore]) -> None:
    file = load(FILE).snapshot
    stored = await stores[0].seed(file)
    clusters = {row.name: row.id for row in stored.tables.clusters}
    groups = {row.name: row.id for row in stored.tables.groups}
    editor = service(stores[0], file)
    await editor.patch_cluster("east", {}, "bi")
    await editor.patch_group("bi", {}, "east")
    tables = (await stores[0].load()).tables
    assert {row.name: row.id for row in tables.clusters} == {
        "bi": clusters["east"],
        "files": clusters["files"],
    }
    assert {row.name: row.id for row in tables.groups} == {"east": groups["bi"], "spare": groups["spare"]}


async def test_a_newer_versions_cluster_is_deleted_and_its_name_is_free(
    stores: tuple[ConfigStore, ConfigStore],
) -> None:
    file = load(FILE).snapshot
    before = await stores[0].seed(file)
    newer = ClusterRow(name="hive", engine_key="hive9")
    groups = tuple(replace(row, members=("hive", *row.members)) for row in before.tables.groups)
    tables = replace(before.tables, clusters=(*before.tables.clusters, newer), groups=groups)
    await stores[0].save(before, tables)
    desk = service(stores[1], file)
    record = {"engineKey": "trino", "config": {"endpoint": "http://h:1"}}
    with pytest.raises(NotServed):
        await desk.put_cluster("hive", record)
    await desk.delete_cluster("hive")
    assert (await stores[0].load()).tables.groups == before.tables.groups
    await desk.put_cluster("hive", record)
    assert (await stores[0].load()).tables.clusters[-1].engine_key == "trino"


async def test_edits_at_the_same_time_are_all_kept(stores: tuple[ConfigStore, ConfigStore]) -> None:
    file = load(FILE).snapshot
    sequence = (await stores[0].seed(file)).sequence
    editors = [service(stores[number % 2], file) for number in range(6)]
    await asyncio.gather(
        *(
            editor.put_cluster(f"c{number}", {"engineKey": "duckDb", "maxRunningQueries": number})
            for number, editor in enumerate(editors)
        )
    )
    clusters = (await editors[0].current()).clear["clusters"]
    assert {name: clusters[name].get("maxRunningQueries") for name in clusters if name[0] == "c"} == {
        f"c{number}": number for number in range(6)
    }
    assert (await stores[1].revision())[1] == sequence + 6
    with pytest.raises(Changed):
        await editors[1].put_sections({"routingFallback": "spare"}, expected=sequence)


async def test_a_changed_password_is_everybodys(stores: tuple[ConfigStore, ConfigStore]) -> None:
    clock = ManualClock()
    one, other = (Login(AdminApiConfig(), store, clock) for store in stores)
    await other.check(HERE, ("admin", "admin"))
    await one.change(HERE, "admin", "s3cr3t-9")
    await clock.advance(1)
    with pytest.raises(AuthenticationFailed):
        await other.check(HERE, ("admin", "admin"))
    await other.check(HERE, ("admin", "s3cr3t-9"))
    assert (await other.status())["db_override"] is True
