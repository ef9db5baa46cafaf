"""Every configuration store passes the same tests; those of PostgreSQL run on each version there is."""

import asyncio
import json
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from queryflux.config.hooks import decode_hook
from queryflux.config.rows import updated
from queryflux.config.snapshot import Snapshot, revision_of
from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import ScriptRow, Tables
from queryflux.model.errors import ConfigConflict, ConfigError
from queryflux.persistence.memory_config import MemoryConfigStore
from queryflux.persistence.sqlite.config import SqliteConfigStore
from tests.kit.config_stores import STORES, Place, open_store, place_of
from tests.kit.databases import DATABASES, Database
from tests.kit.snapshots import tied_snapshots


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ConfigStore]:
    with place_of(request.param, tmp_path) as place:
        async with open_store(request.param, place) as opened:
            yield opened


def snapshot(document: dict[str, Any]) -> Snapshot:
    return msgspec.convert(json.loads(json.dumps(document)), Snapshot, dec_hook=decode_hook)


FILE = snapshot(
    {
        "clusters": {
            "east": {"engine": "trino", "endpoint": "http://e:1", "maxRunningQueries": 4},
            "west": {"engine": "duckDb"},
        },
        "clusterGroups": {
            "bi": {"members": ["west", "east"], "queryTimeoutSecs": 1.5, "maxQueuedQueries": 0},
            "etl": {"members": ["east"], "authorization": {"allowUsers": ["ann"]}},
        },
        "routers": [{"type": "userGroup", "userToGroup": {"ann": "etl", "bob": "bi"}}],
        "routingFallback": "bi",
    }
)


def read(stored: StoredConfig, file: Snapshot | None = None) -> Snapshot:
    document, _ = stored.document(file or Snapshot())
    return snapshot(document)


async def put(store: ConfigStore, wanted: Snapshot, *sections: str) -> StoredConfig:
    before = await store.load()
    return await store.save(before, updated(before.tables, wanted, sections or SECTIONS))


SECTIONS = (
    "clusters",
    "clusterGroups",
    "scripts",
    "routers",
    "auth",
    "guardrails",
    "translation",
    "catalogProvider",
    "accessControl",
    "queryHistory",
)


async def test_a_new_store_is_empty(store: ConfigStore) -> None:
    stored = await store.load()
    assert (stored.tables, stored.sequence) == (Tables(), 0)
    assert await store.revision() == (stored.epoch, 0)


async def test_everything_survives(store: ConfigStore) -> None:
    await put(store, FILE)
    assert revision_of(read(await store.load())) == revision_of(FILE)


@pytest.mark.parametrize("kind", STORES)
def test_any_configuration_survives_in_place_of_any_other(kind: str, tmp_path: Path) -> None:
    async def there_and_back(place: Place, wanted: Snapshot) -> None:
        async with open_store(kind, place) as store:
            saved = await put(store, wanted)
            loaded = await store.load()
            assert revision_of(read(loaded)) == revision_of(wanted)
            assert saved == loaded

    with place_of(kind, tmp_path) as place:

        @settings(max_examples=20, deadline=None)
        @given(wanted=tied_snapshots())
        def survives(wanted: Snapshot) -> None:
            asyncio.run(there_and_back(place, wanted))

        survives()


async def test_a_file_seeds_what_is_missing_and_overwrites_nothing(store: ConfigStore) -> None:
    await put(store, snapshot({"clusters": {"east": {"engine": "duckDb"}}}), "clusters")
    stored = await store.seed(FILE)
    assert {row.name: row.engine_key for row in stored.tables.clusters} == {
        "east": "duckDb",
        "west": "duckDb",
    }
    assert [row.name for row in stored.tables.groups] == ["bi", "etl"]
    assert stored.tables.groups[0].members == ("west", "east")
    assert not stored.tables.routing.active
    again = await store.seed(FILE)
    assert (again.sequence, again.tables) == (stored.sequence, stored.tables)


async def test_two_seed_at_the_same_time(store: ConfigStore) -> None:
    await asyncio.gather(*(store.seed(FILE) for _ in range(4)))
    stored = await store.load()
    assert [row.name for row in stored.tables.clusters] == ["east", "west"]
    assert stored.sequence == 1


async def test_each_change_counts_once_and_no_change_not_at_all(store: ConfigStore) -> None:
    first = await put(store, FILE)
    assert first.sequence == 1
    assert await store.revision() == (first.epoch, 1)
    assert (await put(store, FILE)).sequence == 1
    second = await put(store, replace(FILE, routing_fallback="etl"), "routers")
    assert (second.sequence, second.epoch) == (2, first.epoch)
    assert (await store.load()) == second


async def test_somebody_elses_change_is_not_overwritten(store: ConfigStore) -> None:
    before = await store.seed(FILE)
    after = updated(before.tables, snapshot({"clusters": {}}), {"clusters"})
    await put(store, replace(FILE, routing_fallback="etl"), "routers")
    with pytest.raises(ConfigConflict):
        await store.save(before, after)
    assert [row.name for row in (await store.load()).tables.clusters] == ["east", "west"]


async def test_one_of_many_edits_at_the_same_time_wins(store: ConfigStore) -> None:
    before = await store.seed(FILE)
    saves = [
        store.save(before, updated(before.tables, replace(FILE, routing_fallback=name), {"routers"}))
        for name in ("bi", "etl", "bi", "etl")
    ]
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert sum(isinstance(outcome, StoredConfig) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConfigConflict) for outcome in outcomes) == 3


async def test_a_renamed_cluster_keeps_its_id_and_its_place_in_groups(store: ConfigStore) -> None:
    before = await put(store, FILE)
    ids = {row.name: row.id for row in before.tables.clusters}
    clusters = {"north" if name == "east" else name: item for name, item in FILE.clusters.items()}
    groups = {
        name: replace(group, members=tuple("north" if it == "east" else it for it in group.members))
        for name, group in FILE.cluster_groups.items()
    }
    wanted = replace(FILE, clusters=clusters, cluster_groups=groups)
    after = updated(before.tables, wanted, {"clusters", "clusterGroups"}, {"north": "east"})
    await store.save(before, after)
    loaded = await store.load()
    assert {row.name: row.id for row in loaded.tables.clusters} == {"north": ids["east"], "west": ids["west"]}
    assert loaded.tables.groups[0].members == ("west", "north")


async def test_two_clusters_exchange_their_names(store: ConfigStore) -> None:
    before = await put(store, FILE)
    wanted = replace(FILE, clusters={"west": FILE.clusters["east"], "east": FILE.clusters["west"]})
    after = updated(before.tables, wanted, {"clusters"}, {"west": "east", "east": "west"})
    await store.save(before, after)
    assert revision_of(read(await store.load())) == revision_of(wanted)


async def test_a_renamed_group_takes_its_rules_along(store: ConfigStore) -> None:
    before = await put(store, FILE)
    wanted = snapshot(
        {
            "clusters": {},
            "clusterGroups": {"bi": {"members": ["west", "east"]}, "batch": {"members": ["east"]}},
            "routers": [{"type": "userGroup", "userToGroup": {"ann": "batch", "bob": "bi"}}],
            "routingFallback": "batch",
        }
    )
    after = updated(before.tables, wanted, {"clusterGroups", "routers"}, {"batch": "etl"})
    await store.save(before, after)
    loaded = await store.load()
    assert [row.id for row in loaded.tables.groups] == [row.id for row in before.tables.groups]
    assert read(loaded).routers == wanted.routers
    assert read(loaded).routing_fallback == "batch"


async def test_what_is_gone_is_gone(store: ConfigStore) -> None:
    await put(store, FILE)
    wanted = snapshot({"clusters": {"west": {"engine": "duckDb"}}, "clusterGroups": {"bi": {"members": []}}})
    await put(store, wanted)
    assert revision_of(read(await store.load())) == revision_of(wanted)


async def test_an_id_is_not_given_twice(store: ConfigStore) -> None:
    first = await put(store, FILE)
    await put(store, snapshot({}))
    again = await put(store, FILE)
    ids = {row.id for row in first.tables.clusters} & {row.id for row in again.tables.clusters}
    assert ids == set()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"clusterGroups": {"g": {"members": ["ghost"]}}}, "'ghost'"),
        ({"routers": [{"type": "userGroup", "userToGroup": {"ann": "ghost"}}]}, "'ghost'"),
    ],
)
async def test_a_reference_to_nothing_is_refused_and_nothing_is_written(
    store: ConfigStore, document: dict[str, Any], words: str
) -> None:
    before = await store.load()
    with pytest.raises(ConfigError, match=words):
        await put(store, snapshot(document))
    assert await store.load() == before


async def test_variants_can_be_members(store: ConfigStore) -> None:
    wanted = snapshot(
        {
            "clusters": {
                "a": {"engine": "trino", "variants": [{"name": "x"}, {"name": "y"}]},
                "b": {"engine": "trino"},
            },
            "clusterGroups": {"g": {"members": ["a::y", "b", "a::x"]}},
        }
    )
    await put(store, wanted)
    assert (await store.load()).tables.groups[0].members == ("a::y", "b", "a::x")


async def test_scripts_and_settings_of_others_are_kept(store: ConfigStore) -> None:
    before = await store.seed(FILE)
    after = replace(
        before.tables,
        scripts=(ScriptRow(name="fix", kind="translation_fixup", body="def transform(sql, src, dst): ..."),),
        settings={"admin_credentials": {"username": "root"}, "nothing": None},
    )
    saved = await store.save(before, after)
    await put(store, FILE, "routers")
    loaded = await store.load()
    assert loaded.tables.scripts == saved.tables.scripts
    assert loaded.tables.settings == after.settings
    without = replace(loaded.tables, scripts=(), settings={"nothing": None})
    await store.save(loaded, without)
    assert ((await store.load()).tables.scripts, (await store.load()).tables.settings) == (
        (),
        {"nothing": None},
    )


async def test_what_a_store_cannot_hold_is_refused_and_nothing_is_written(store: ConfigStore) -> None:
    wanted = snapshot({"clusters": {"a": {"engine": "trino", "endpoint": "a\0b"}}})
    before = await store.load()
    if isinstance(store, MemoryConfigStore | SqliteConfigStore):
        await put(store, wanted)
        assert revision_of(read(await store.load())) == revision_of(wanted)
    else:
        with pytest.raises(ConfigError, match="NUL"):
            await put(store, wanted)
        assert await store.load() == before


@pytest.mark.parametrize("kind", DATABASES)
async def test_what_the_database_complains_about_shows_no_secret(kind: str, tmp_path: Path) -> None:
    with place_of(kind, tmp_path) as place:
        assert isinstance(place, Database)
        place.rows("ALTER TABLE cluster_configs ADD CHECK (name <> 'a')")
        wanted = snapshot(
            {"clusters": {"a": {"engine": "trino", "auth": {"type": "bearer", "token": "s3cr3t"}}}}
        )
        async with open_store(kind, place) as store:
            with pytest.raises(ConfigError, match="check constraint") as caught:
                await put(store, wanted, "clusters")
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


async def test_listeners_hear_of_changes(store: ConfigStore) -> None:
    changes = store.changes()
    async with asyncio.timeout(10):
        await anext(changes)  # once at the beginning
        heard = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        stored = await store.seed(FILE)
        await heard
        heard = asyncio.ensure_future(anext(changes))
        await store.save(stored, updated(stored.tables, replace(FILE, routing_fallback="etl"), {"routers"}))
        await heard
    await changes.aclose()


async def test_groups_list_scripts_by_name_and_in_order_whatever_ids_they_have(store: ConfigStore) -> None:
    body = "def transform(sql, src, dst): return sql"
    document = {
        "clusterGroups": {"g": {"members": [], "translationScripts": ["b", "a"]}},
        "scripts": {name: {"kind": "translation_fixup", "body": body} for name in ("a", "b")},
    }
    first = await put(store, snapshot(document))
    assert first.tables.groups[0].translation_scripts == ("b", "a")
    a, b = first.tables.scripts
    again = replace(first.tables, scripts=(b, replace(a, id=None)))
    second = await store.save(first, again)
    loaded = await store.load()
    assert loaded == second
    assert loaded.tables.groups[0].translation_scripts == ("b", "a")
    ids = {row.name: row.id for row in loaded.tables.scripts}
    assert ids["b"] == b.id
    assert ids["a"] not in (None, a.id)
    gone = replace(loaded.tables, scripts=())
    with pytest.raises(ConfigError, match="no such script"):
        await store.save(loaded, gone)
