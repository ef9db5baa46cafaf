"""Rows of a shape that nobody can read: seen, named, in the way of all other edits, and mended by the API."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.config.listeners import AdminApiConfig
from queryflux.config.problems import ConfigProblems
from queryflux.controlplane.changes import change_document
from queryflux.controlplane.config_service import ConfigService
from queryflux.controlplane.errors import InUse, NotServed, StoredUnsound
from queryflux.controlplane.login import Login
from queryflux.controlplane.scripts_service import ScriptLibrary
from queryflux.model.errors import ConfigError
from queryflux.persistence.sqlite.config import SqliteConfigStore
from tests.contract.test_config_edits import HERE, service
from tests.kit.clock import ManualClock
from tests.kit.config_stores import open_postgres, open_store, place_of
from tests.kit.databases import DATABASES, Database
from tests.kit.operators import FILE
from tests.rooms.config.reading import load

NEW = {"engineKey": "trino", "config": {"endpoint": "http://n:1"}}
BAD = "INSERT INTO cluster_configs (name, engine_key, config) VALUES ('bad', 'duckDb', '[\"s3cr3t\"]')"
LISTED = (
    "UPDATE cluster_group_configs SET members = members ||"
    " (SELECT id FROM cluster_configs WHERE name = 'bad') WHERE name = 'bi'"
)
BAD_GROUP = "UPDATE cluster_group_configs SET default_tags = '[]' WHERE name = 'bi'"
BAD_RULE = "UPDATE routing_rules SET definition = '[]' WHERE slice_index = 0"
BAD_SECURITY = "UPDATE security_settings SET config = '[]'"
BUMP = "UPDATE config_revision SET revision = revision + 1"


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with place_of(request.param, tmp_path) as place:
        assert isinstance(place, Database)
        yield place


@asynccontextmanager
async def desk_over(database: Database, *damage: str) -> AsyncIterator[ConfigService]:
    """FILE is stored, its rules too, and then somebody was at the tables."""
    async with open_postgres(database) as store:
        file = load(FILE).snapshot
        await store.seed(file)
        desk = service(store, file)
        rules = (await desk.routing())["routers"]
        for fallback in ("spare", "bi"):
            await desk.put_routing({"routers": rules, "routingFallback": fallback})
        for statement in (*damage, BUMP):
            database.rows(statement)
        yield desk


def rows(database: Database, sql: str) -> list[Any]:
    return [row[0] for row in database.rows(sql)]


async def test_one_cluster_that_cannot_be_read_is_named_and_hides_nothing(database: Database) -> None:
    async with desk_over(database, BAD, LISTED) as desk:
        current = await desk.current()
        (it,) = current.left_out
        assert it.path == "clusters.bad"
        assert it.reason.startswith(
            "its row of cluster_configs cannot be read: Expected `object`, got `array`"
        )
        one, clusters = await desk.cluster("bad"), await desk.clusters()
        assert (one["name"], one["engineKey"], one["notServed"]) == ("bad", None, it.reason)
        assert [record["name"] for record in clusters] == ["east", "files", "bad"]
        shown = [one, clusters, await desk.groups(), current.shown]
        assert (await desk.group("bi"))["leftOutMembers"] == ["bad"]
        assert "s3cr3t" not in json.dumps(shown)
        with pytest.raises(ConfigProblems, match=r"clusters\.bad: its row of cluster_configs"):
            current.stored.document(load(FILE).snapshot)


async def test_all_other_edits_are_refused_for_what_is_stored(database: Database) -> None:
    async with desk_over(database, BAD) as desk:
        for edit in (
            desk.patch_cluster("east", {"maxRunningQueries": 9}),
            desk.put_cluster("new", NEW),
            desk.delete_cluster("files"),
            desk.put_setting("translation", {}),
            desk.put_sections({"translation": {}}, dry_run=True),
        ):
            with pytest.raises(StoredUnsound) as caught:
                await edit
            assert [it.path for it in caught.value.problems] == ["clusters.bad"]
        with pytest.raises(NotServed, match="cannot be read"):
            await desk.patch_cluster("bad", {"enabled": False})
        assert rows(database, "SELECT name FROM cluster_configs ORDER BY id") == ["east", "files", "bad"]


async def test_a_cluster_is_mended_in_its_row_and_in_its_groups(database: Database) -> None:
    async with desk_over(database, BAD, LISTED) as desk:
        (row_id,) = rows(database, "SELECT id FROM cluster_configs WHERE name = 'bad'")
        outcome = await desk.put_cluster("bad", NEW)
        assert [change_document(it)["path"] for it in outcome.changes] == ["clusters.bad"]
        assert rows(database, "SELECT id FROM cluster_configs WHERE engine_key = 'trino'")[-1] == row_id
        assert (await desk.group("bi"))["members"] == ["east", "files", "bad"]
        await desk.patch_cluster("east", {"maxRunningQueries": 9})


async def test_a_cluster_is_deleted_from_its_groups_too(database: Database) -> None:
    async with desk_over(database, BAD, LISTED) as desk:
        outcome = await desk.delete_cluster("bad")
        assert [(it.op, it.path) for it in outcome.changes][-1] == ("remove", "clusters.bad")
        assert rows(database, "SELECT name FROM cluster_configs ORDER BY id") == ["east", "files"]
        assert (await desk.group("bi"))["members"] == ["east", "files"]
        assert not (await desk.current()).left_out


async def test_of_several_each_is_mended_by_itself(database: Database) -> None:
    async with desk_over(database, BAD, BAD.replace("'bad'", "'worse'")) as desk:
        await desk.put_cluster("bad", NEW)
        assert [it.name for it in (await desk.current()).left_out] == ["worse"]
        with pytest.raises(StoredUnsound):
            await desk.put_cluster("bad", NEW)
        await desk.delete_cluster("worse")
        await desk.put_cluster("more", NEW)


async def test_a_section_that_is_replaced_whole_has_none_of_them_any_more(database: Database) -> None:
    async with desk_over(database, BAD, LISTED, BAD_GROUP) as desk:
        clusters = (await desk.current()).shown["clusters"]
        groups = {name: {"members": ["east"]} for name in ("bi", "spare")}
        outcome = await desk.put_sections({"clusters": clusters, "clusterGroups": groups})
        assert ("remove", "clusters.bad") in [(it.op, it.path) for it in outcome.changes]
        assert not (await desk.current()).left_out


async def test_a_group_that_queries_are_routed_to_is_mended_and_not_deleted(database: Database) -> None:
    async with desk_over(database, BAD_GROUP) as desk:
        (row_id,) = rows(database, "SELECT id FROM cluster_group_configs WHERE name = 'bi'")
        assert (await desk.group("bi"))["notServed"].startswith("its row of cluster_group_configs")
        with pytest.raises(InUse):
            await desk.delete_group("bi")
        with pytest.raises(StoredUnsound):
            await desk.put_group("spare", {"members": ["east"]})
        routing = await desk.routing()
        await desk.put_group("bi", {"members": ["east"]})
        assert rows(database, "SELECT id FROM cluster_group_configs WHERE name = 'bi'") == [row_id]
        assert await desk.routing() == routing
        assert (await desk.group("bi"))["members"] == ["east"]


async def test_rules_are_mended_by_new_ones(database: Database) -> None:
    async with desk_over(database, BAD, BAD_RULE) as desk:
        with pytest.raises(StoredUnsound) as caught:
            await desk.routing()
        assert "routing_rules cannot be read: router 0, slice 0" in caught.value.problems[0].message
        with pytest.raises(StoredUnsound):  # it would take the rules along
            await desk.delete_cluster("bad")
        await desk.put_routing({"routers": []})
        assert rows(database, "SELECT 1 FROM routing_rules") == []
        await desk.delete_cluster("bad")
        assert not (await desk.current()).left_out


async def test_security_is_mended_by_either_of_its_settings(database: Database) -> None:
    async with desk_over(database, BAD_SECURITY) as desk:
        assert {"auth", "authorization"}.isdisjoint((await desk.current()).shown)
        settings = await desk.settings()
        assert (settings["auth"], settings["translation"]) == (None, {"mode": "strict"})
        for edit in (desk.setting("authorization"), desk.patch_setting("auth", {"required": False})):
            with pytest.raises(StoredUnsound):
                await edit
        await desk.put_setting("authorization", {})
        assert rows(database, "SELECT jsonb_typeof(config) FROM security_settings") == ["object"]
        assert not (await desk.current()).left_out


async def test_the_password_can_be_changed_all_the_same(database: Database) -> None:
    async with open_postgres(database) as store:
        database.rows(BAD)
        database.rows(BUMP)
        login = Login(AdminApiConfig(), store, ManualClock())
        await login.change(HERE, "admin", "s3cr3t-9")
        await login.check(HERE, ("admin", "s3cr3t-9"))
        assert [it.name for it in (await store.load()).tables.unreadable] == ["bad"]
        assert not (await store.seed(load(FILE).snapshot)).tables.clusters


async def test_rules_and_members_of_odd_shapes_are_told_too(database: Database) -> None:
    odd = 'UPDATE routing_rules SET definition = \'{"type": "userGroup", "userToGroup": []}\''
    names = "UPDATE cluster_group_configs SET settings = '{\"members\": 5}' WHERE name = 'spare'"
    async with desk_over(database, odd, names) as desk:
        assert [it.path for it in (await desk.current()).left_out] == ["clusterGroups.spare"]
        with pytest.raises(StoredUnsound) as caught:
            await desk.delete_group("spare")
        assert "routers[0].userToGroup" in {it.path for it in caught.value.problems}
        await desk.put_routing({"routers": []})
        await desk.delete_group("spare")
        assert not (await desk.current()).left_out


@pytest.mark.parametrize("kind", ["cluster", "group", "script"])
async def test_a_row_of_a_file_is_mended_too(kind: str, tmp_path: Path) -> None:
    async with open_store("sqlite", tmp_path) as store:
        file = load(FILE).snapshot
        await store.seed(file)
        desk = service(store, file)
        library = ScriptLibrary(desk)
        await library.add({"name": "s", "kind": "routing", "body": "def route(query):\n    return None\n"})
        await desk.put_group("night", {"members": ["east"]})
        await desk.put_cluster("new", NEW)
        name = {"cluster": "new", "group": "night", "script": "s"}[kind]
        assert isinstance(store, SqliteConfigStore)
        await store._database.write(
            lambda connection: (
                connection.execute("UPDATE config_rows SET body = '[]' WHERE name = ?", (name,)),
                connection.execute("UPDATE config_revision SET revision = revision + 1"),
            )
        )
        (it,) = (await desk.current()).left_out
        assert (it.name, it.row is not None and it.row.table) == (name, "config_rows")
        with pytest.raises(StoredUnsound):
            await desk.patch_cluster("east", {"maxRunningQueries": 9})
        if kind == "cluster":
            await desk.delete_cluster(name)
        elif kind == "group":
            await desk.put_group(name, {"members": ["files"]})
        else:
            (record,) = await library.scripts()
            assert record["notServed"] == it.reason
            assert await library.script(str(record["id"])) == record
            await library.delete(str(record["id"]))
        assert not (await desk.current()).left_out
        await desk.patch_cluster("east", {"maxRunningQueries": 9})


async def test_what_a_request_adds_is_its_own_fault_and_what_was_there_is_not(tmp_path: Path) -> None:
    async with open_store("sqlite", tmp_path) as store:
        file = load(FILE).snapshot
        before = await store.seed(file)
        clusters = tuple(
            replace(row, config={"endpiont": "x"}) if row.name == "east" else row
            for row in before.tables.clusters
        )
        await store.save(before, replace(before.tables, clusters=clusters))
        desk = service(store, file)
        with pytest.raises(StoredUnsound) as caught:
            await desk.patch_cluster("files", {"enabled": False})
        assert {it.path.partition(".endp")[0] for it in caught.value.problems} == {"clusters.east"}
        for wrong in (
            desk.patch_cluster("files", {"config": {"nonsense": 1}}),
            desk.patch_cluster("east", {"enabled": False}),
        ):
            with pytest.raises(ConfigProblems):
                await wrong
        await desk.put_cluster("east", NEW)
        await desk.patch_cluster("files", {"enabled": False})


async def test_a_store_of_which_nothing_can_be_made_blames_nobody(tmp_path: Path) -> None:
    class Broken:
        async def load(self) -> None:
            raise ConfigError("rest cannot be read")

    desk = service(Broken(), load(FILE).snapshot)  # type: ignore[arg-type]
    for asked in (desk.current(), desk.put_cluster("new", NEW)):
        with pytest.raises(StoredUnsound, match="rest cannot be read"):
            await asked
