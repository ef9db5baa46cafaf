"""Clusters that a newer version has stored: seen, not served, not written over, and gone when deleted. And
rows that nobody can read, as far as HTTP goes (the rest is tests/contract/test_unreadable_rows.py).
"""

from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.config.tables import ClusterRow, Unreadable
from queryflux.controlplane.following_api import following_endpoint
from queryflux.controlplane.reload import Following
from queryflux.persistence.memory_config import MemoryConfigStore
from tests.kit.clock import START
from tests.kit.operators import Asker, Port, make_port

WHY = "this version has no engine 'hive9'"
HIVE = {"name": "hive", "engineKey": "trino", "config": {"endpoint": "http://h:1"}}


@pytest.fixture
async def port() -> Port:
    """FILE is stored, and a cluster of another version that its group ``bi`` lists, and a variant of it."""
    store = MemoryConfigStore()
    await make_port(store=store)
    before = await store.load()
    newer = ClusterRow(name="hive", engine_key="hive9", config={"endpoint": "x", "auth": {"pin": "s3cr3t"}})
    groups = tuple(
        replace(row, members=("hive", *row.members, "hive::big")) if row.name == "bi" else row
        for row in before.tables.groups
    )
    tables = replace(before.tables, clusters=(*before.tables.clusters, newer), groups=groups)
    await store.save(before, tables)
    return await make_port(store=store)


@pytest.fixture
def ask(port: Port) -> Asker:
    return port.asker()


async def members(port: Port) -> tuple[str, ...]:
    return next(row.members for row in (await port.store.load()).tables.groups if row.name == "bi")


async def test_it_is_seen_and_said_why(ask: Asker) -> None:
    one = (await ask("GET", "/admin/config/clusters/hive")).json
    assert (one["name"], one["engineKey"], one["config"], one["notServed"]) == ("hive", None, None, WHY)
    everything = await ask("GET", "/admin/config/clusters")
    assert [(it["name"], it.get("notServed")) for it in everything.json] == [
        ("east", None),
        ("files", None),
        ("hive", WHY),
    ]
    whole = await ask("GET", "/admin/config")
    assert whole.json["notServed"] == [{"path": "clusters.hive", "reason": WHY}]
    assert b"s3cr3t" not in everything.body + whole.body


async def test_a_group_tells_which_of_its_members_are_not_served(ask: Asker, port: Port) -> None:
    group = (await ask("GET", "/admin/config/groups/bi")).json
    assert (group["members"], group["leftOutMembers"]) == (["east", "files"], ["hive", "hive::big"])
    assert "leftOutMembers" not in (await ask("GET", "/admin/config/groups/spare")).json
    reply = await ask("PUT", "/admin/config/groups/bi", {**group, "maxQueuedQueries": 3})
    assert reply.status == 200
    assert (await ask("PATCH", "/admin/config/groups/bi", {"maxQueuedQueries": 4})).status == 200
    assert set(await members(port)) == {"east", "files", "hive", "hive::big"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/admin/config/clusters/hive", HIVE),
        ("PATCH", "/admin/config/clusters/hive", {"enabled": False}),
        ("PATCH", "/admin/config/clusters/hive", {"newName": "h"}),
        ("PUT", "/admin/config", {"document": {"clusters": {"hive": {"engine": "duckDb"}}}}),
    ],
)
async def test_it_is_not_written_over(ask: Asker, port: Port, method: str, path: str, body: Any) -> None:
    before = await port.store.load()
    reply = await ask(method, path, body)
    assert (reply.status, reply.json["code"]) == (409, "NOT_SERVED")
    assert WHY in reply.json["detail"]
    assert "delete it" in reply.json["hint"]
    assert await port.store.load() == before


async def test_no_other_cluster_takes_its_name(ask: Asker) -> None:
    reply = await ask("PATCH", "/admin/config/clusters/east", {"newName": "hive"})
    assert (reply.status, reply.json["code"]) == (409, "NAME_TAKEN")


async def test_it_can_be_deleted_and_leaves_its_groups(ask: Asker, port: Port) -> None:
    assert (await ask("DELETE", "/admin/config/clusters/hive")).status == 204
    assert port.applied == 1
    assert await members(port) == ("east", "files")
    assert [row.name for row in (await port.store.load()).tables.clusters] == ["east", "files"]
    assert (await ask("GET", "/admin/config/clusters/hive")).status == 404
    assert (await ask("DELETE", "/admin/config/clusters/hive")).status == 404
    assert (await ask("PUT", "/admin/config/clusters/hive", HIVE)).status == 200


async def test_one_that_no_group_lists_can_be_deleted_too(ask: Asker, port: Port) -> None:
    before = await port.store.load()
    groups = tuple(replace(row, members=("east",)) for row in before.tables.groups)
    await port.store.save(before, replace(before.tables, groups=groups))
    assert (await ask("DELETE", "/admin/config/clusters/hive")).status == 204
    assert (await ask("GET", "/admin/config/clusters/hive")).status == 404


async def test_a_row_that_cannot_be_read_is_not_the_requests_fault(ask: Asker, port: Port) -> None:
    await ask("DELETE", "/admin/config/clusters/hive")
    before = await port.store.load()
    bad = Unreadable(id=77, name="bad", section="clusters", table="cluster_configs", reason="no object")
    await port.store.save(before, replace(before.tables, unreadable=(bad,)))
    whole = await ask("GET", "/admin/config")
    why = "its row of cluster_configs cannot be read: no object"
    assert (whole.status, whole.json["notServed"]) == (200, [{"path": "clusters.bad", "reason": why}])
    reply = await ask("PATCH", "/admin/config/clusters/east", {"enabled": False})
    assert (reply.status, reply.json["code"]) == (409, "STORED_CONFIG")
    assert reply.json["problems"] == [
        {"path": "clusters.bad", "message": why, "hint": "replace it whole (PUT), or delete it"}
    ]
    reply = await ask("PATCH", "/admin/config/clusters/bad", {"enabled": False})
    assert (reply.status, reply.json["code"]) == (409, "NOT_SERVED")
    record = (await ask("GET", "/admin/config/clusters/bad")).json
    assert (await ask("PUT", "/admin/config/clusters/bad", record)).status == 400
    assert (await ask("DELETE", "/admin/config/clusters/bad")).status == 204
    assert (await ask("PATCH", "/admin/config/clusters/east", {"enabled": False})).status == 200


async def test_both_statuses_warn_of_it(port: Port) -> None:
    said = f"cluster hive is left out: {WHY}"
    port.process.following = Following("epoch-1", 7, START, warnings=(said,))
    assert (await port.asker()("GET", "/admin/status")).json["warnings"] == [said]
    endpoint = following_endpoint(lambda: port.process.following, lambda: "r")
    answer = await endpoint.handle(None)  # type: ignore[arg-type]
    assert f'"current":true,"failure":null,"stage":null,"failingSince":null,"warnings":["{said}"]' in bytes(
        answer.body
    ).decode().replace('\\"', '"')
