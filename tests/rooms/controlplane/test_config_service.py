"""Edits of the configuration: the whole of it is checked, nothing is stored by half, secrets stay inside."""

import json
from dataclasses import replace as replaced
from typing import Any

import msgspec
import pytest

from queryflux.config.masking import MARKER
from queryflux.config.problems import ConfigProblems
from queryflux.config.process import ProcessConfig
from queryflux.config.tables import ClusterRow
from queryflux.controlplane.config_service import ConfigService, Rules
from queryflux.controlplane.errors import Changed, InUse, NameTaken, NotThere, Refused
from queryflux.routing.regex import check_regex
from tests.kit.operators import FILE
from tests.rooms.config.reading import load
from tests.rooms.controlplane.stores import OvertakenStore


class Applied:
    """Counts, and says what it is told to."""

    times = 0
    note = ""

    async def __call__(self) -> str:
        self.times += 1
        return self.note


class Desk:
    """A service over a store that holds FILE."""

    def __init__(self) -> None:
        self.store = OvertakenStore()
        self.applied = Applied()
        self.file = load(FILE).snapshot
        rules = Rules(ProcessConfig(), check_regex, lambda text: None)
        self.service = ConfigService(self.store, self.file, rules, durable=False, apply=self.applied)

    async def document(self) -> dict[str, Any]:
        """What is stored, in clear."""
        return (await self.service.current()).clear


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.store.holds(desk.file)
    return desk


async def test_records_have_every_key_and_no_secret(desk: Desk) -> None:
    assert await desk.service.cluster("east") == {
        "name": "east",
        "engineKey": "trino",
        "enabled": True,
        "maxRunningQueries": 5,
        "config": {
            "endpoint": "https://trino:8443",
            "auth": {"type": "basic", "username": "svc", "password": MARKER},
        },
        "variants": [],
    }
    group = await desk.service.group("bi")
    assert (group["members"], group["allowUsers"]) == (["east", "files"], ["ann"])
    assert (group["maxRunningQueries"], group["strategy"]) == (None, {"type": "roundRobin"})
    assert (await desk.service.routing())["routingFallback"] == "bi"
    assert await desk.service.setting("translation") == {"mode": "strict"}
    everything = json.dumps([await desk.service.clusters(), (await desk.service.current()).shown])
    assert "s3cr3t" not in everything


async def test_a_record_that_is_read_can_be_put_back(desk: Desk) -> None:
    for record in await desk.service.clusters():
        outcome = await desk.service.put_cluster(record["name"], record)
        assert outcome.changes == ()
    for record in await desk.service.groups():
        outcome = await desk.service.put_group(record["name"], record)
        assert outcome.changes == ()
    assert (await desk.service.put_routing(await desk.service.routing())).changes == ()
    assert desk.store.saves == 0
    assert desk.applied.times == 0


async def test_an_edit_is_stored_once_and_applied(desk: Desk) -> None:
    outcome = await desk.service.patch_cluster("east", {"maxRunningQueries": 7})
    assert [(it.op, it.path, it.before, it.after) for it in outcome.changes] == [
        ("change", "clusters.east.maxRunningQueries", 5, 7)
    ]
    assert (outcome.sequence, desk.store.saves, desk.applied.times) == (3, 1, 1)
    east = (await desk.document())["clusters"]["east"]
    assert (east["maxRunningQueries"], east["auth"]["password"]) == (7, "s3cr3t-1")


async def test_null_in_a_patch_takes_a_key_back(desk: Desk) -> None:
    await desk.service.patch_cluster("east", {"maxRunningQueries": None})
    assert (await desk.service.cluster("east"))["maxRunningQueries"] is None


async def test_a_new_secret_is_shown_as_changed_and_never_itself(desk: Desk) -> None:
    auth = {"auth": {"password": "s3cr3t-2"}}
    outcome = await desk.service.patch_cluster("east", {"config": auth})
    (change,) = outcome.changes
    assert (change.path, change.before, change.after, change.secret) == (
        "clusters.east.auth.password",
        MARKER,
        MARKER,
        True,
    )
    assert (await desk.document())["clusters"]["east"]["auth"]["password"] == "s3cr3t-2"


async def test_what_is_wrong_anywhere_stops_the_edit_and_nothing_is_stored(desk: Desk) -> None:
    record = {"engineKey": "trino", "config": {"endpont": "https://b", "auth": {"type": "bearer"}}}
    with pytest.raises(ConfigProblems) as caught:
        await desk.service.put_cluster("west", record)
    assert [problem.path for problem in caught.value.problems] == [
        "clusters.west.endpont",
        "clusters.west.endpoint",
        "clusters.west.auth.token",
    ]
    with pytest.raises(ConfigProblems) as caught:
        await desk.service.put_group("bi", {"members": ["eest"]})
    assert [(it.path, it.hint) for it in caught.value.problems] == [
        ("clusterGroups.bi.members[0]", "did you mean east?")
    ]
    rules = [{"type": "queryRegex", "rules": [{"regex": "(", "targetGroup": "by"}]}]
    with pytest.raises(ConfigProblems) as caught:
        await desk.service.put_routing({"routers": rules})
    assert {it.path for it in caught.value.problems} == {
        "routers[0].rules[0].regex",
        "routers[0].rules[0].targetGroup",
    }
    assert (desk.store.saves, desk.applied.times) == (0, 0)


async def test_a_marker_without_a_stored_secret_is_a_problem(desk: Desk) -> None:
    record = {**await desk.service.cluster("east"), "name": "west"}
    with pytest.raises(ConfigProblems) as caught:
        await desk.service.put_cluster("west", record)
    assert [it.path for it in caught.value.problems] == ["clusters.west.auth.password"]
    assert desk.store.saves == 0


async def test_a_cluster_is_renamed_in_its_groups_and_keeps_its_row_and_its_secret(desk: Desk) -> None:
    desk.store.stored = replaced(desk.store.stored, tables=numbered(desk.store.stored.tables))
    rows = {row.name: row.id for row in desk.store.stored.tables.clusters}
    await desk.service.patch_cluster("east", {"enabled": False}, "west")
    document = await desk.document()
    assert document["clusters"]["west"]["auth"]["password"] == "s3cr3t-1"
    assert document["clusters"]["west"]["enabled"] is False
    assert "east" not in document["clusters"]
    assert document["clusterGroups"]["bi"]["members"] == ["west", "files"]
    assert {row.name: row.id for row in desk.store.stored.tables.clusters} == {
        "west": rows["east"],
        "files": rows["files"],
    }
    with pytest.raises(NameTaken):
        await desk.service.patch_cluster("west", {}, "files")
    with pytest.raises(NotThere, match="there is no cluster"):
        await desk.service.patch_cluster("east", {}, "north")


def numbered(tables: Any) -> Any:
    """The same rows, with ids as a database gives them."""

    def ids(rows: Any) -> tuple[Any, ...]:
        return tuple(msgspec.structs.replace(row, id=at) for at, row in enumerate(rows, 1))

    return msgspec.structs.replace(tables, clusters=ids(tables.clusters), groups=ids(tables.groups))


async def test_a_group_is_renamed_wherever_queries_are_routed_to_it(desk: Desk) -> None:
    await desk.service.patch_group("bi", {}, "reports")
    document = await desk.document()
    assert list(document["clusterGroups"]) == ["reports", "spare"]
    assert document["routingFallback"] == "reports"
    assert document["routers"][0]["userToGroup"] == {"ann": "reports"}
    assert document["routers"][1] == {"type": "protocolBased", "trinoHttp": "spare"}


async def test_a_deleted_cluster_leaves_its_groups(desk: Desk) -> None:
    await desk.service.delete_cluster("files")
    document = await desk.document()
    assert (list(document["clusters"]), document["clusterGroups"]["bi"]["members"]) == (["east"], ["east"])
    assert document["clusterGroups"]["spare"]["members"] == []


async def test_a_group_that_is_routed_to_is_not_deleted(desk: Desk) -> None:
    with pytest.raises(InUse) as caught:
        await desk.service.delete_group("bi")
    assert [it.path for it in caught.value.problems] == ["routingFallback", "routers[0].userToGroup.ann"]
    assert desk.store.saves == 0
    await desk.service.put_routing({"routingFallback": "spare", "routers": []})
    await desk.service.delete_group("bi")
    assert list((await desk.document())["clusterGroups"]) == ["spare"]


async def test_somebody_faster_makes_the_edit_begin_again(desk: Desk) -> None:
    def other() -> None:
        desk.store.stored = replaced(desk.store.stored, sequence=desk.store.stored.sequence + 1)

    desk.store.overtakes = [other, other]
    outcome = await desk.service.patch_cluster("east", {"maxRunningQueries": 9})
    assert (outcome.sequence, desk.store.saves) == (5, 1)
    desk.store.overtakes = [other] * 20
    with pytest.raises(Changed, match="others keep changing"):
        await desk.service.patch_cluster("east", {"maxRunningQueries": 8})


async def test_an_edit_of_what_was_seen_is_refused_when_it_is_no_more(desk: Desk) -> None:
    seen = (await desk.service.current()).stored.sequence
    await desk.service.put_sections({"routingFallback": "spare"}, expected=seen)
    with pytest.raises(Changed, match="is at 3 now and not at 2"):
        await desk.service.put_sections({"routingFallback": "bi"}, expected=seen)


async def test_sections_are_replaced_whole_and_others_stay(desk: Desk) -> None:
    shown = (await desk.service.current()).shown
    clusters = {name: cluster for name, cluster in shown["clusters"].items() if name == "east"}
    groups = {"bi": {"members": ["east"]}}
    sections = {"clusters": clusters, "clusterGroups": groups, "routers": []}
    planned = await desk.service.put_sections(sections, dry_run=True)
    assert desk.store.saves == 0
    done = await desk.service.put_sections(sections)
    assert planned.changes == done.changes
    assert {(it.op, it.path) for it in done.changes} == {
        ("remove", "clusters.files"),
        ("change", "clusterGroups.bi.members"),
        ("remove", "clusterGroups.bi.authorization"),
        ("remove", "clusterGroups.spare"),
        ("change", "routers"),
    }
    document = await desk.document()
    assert document["clusters"]["east"]["auth"]["password"] == "s3cr3t-1"
    assert (document["translation"], document["routingFallback"]) == ({"mode": "strict"}, "bi")
    with pytest.raises(ConfigProblems, match='unknown key "clutsers"'):
        await desk.service.put_sections({"clutsers": {}})


async def test_only_what_an_edit_touches_is_taken_from_the_file(desk: Desk) -> None:
    await desk.service.put_setting("translation", {"mode": "bestEffort"})
    tables = desk.store.stored.tables
    assert list(tables.settings) == ["translation_config"]
    assert not tables.routing.active
    assert await desk.service.setting("translation") == {}
    with pytest.raises(NotThere):
        await desk.service.put_setting("translatoin", {})


async def test_clusters_of_a_newer_version_outlive_an_edit(desk: Desk) -> None:
    tables = desk.store.stored.tables
    newer = ClusterRow(name="hive", engine_key="hive9", config={"endpoint": "x"})
    group = msgspec.structs.replace(tables.groups[0], members=("hive", "east", "files"))
    changed = msgspec.structs.replace(
        tables, clusters=(*tables.clusters, newer), groups=(group, *tables.groups[1:])
    )
    desk.store.stored = replaced(desk.store.stored, tables=changed)
    await desk.service.patch_cluster("east", {"maxRunningQueries": 7})
    await desk.service.delete_cluster("files")
    after = desk.store.stored.tables
    assert {row.name for row in after.clusters} == {"east", "hive"}
    assert set(after.groups[0].members) == {"east", "hive"}
    assert "hive" not in json.dumps(await desk.document())


async def test_settings_that_this_version_does_not_have_are_refused(desk: Desk) -> None:
    with pytest.raises(ConfigProblems, match="not available in this version"):
        await desk.service.put_setting("catalogProvider", {"type": "static", "tables": {}})
    with pytest.raises(Refused) as caught:
        await desk.service.put_group("bi", {"members": ["east"], "translationScriptIds": [1]})
    assert caught.value.problems[0].path == "translationScriptIds[0]"


async def test_a_configuration_that_cannot_be_applied_is_stored_with_a_note(desk: Desk) -> None:
    desk.applied.note = "engine duckDb needs the package duckdb"
    outcome = await desk.service.patch_cluster("files", {"enabled": False})
    assert outcome.note == "engine duckDb needs the package duckdb"
