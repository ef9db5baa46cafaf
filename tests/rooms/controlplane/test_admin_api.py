"""The admin API: paths, statuses and shapes; every refusal a problem document; the document of the routes."""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.routing import Route

from queryflux.config.masking import MARKER
from queryflux.controlplane import queries_service
from queryflux.controlplane.live import RunningQuery
from queryflux.controlplane.openapi import documented
from queryflux.model.errors import StoreUnavailable
from tests.kit.operators import Asker, Port, Reply


@pytest.fixture
def ask(port: Port) -> Asker:
    return port.asker()


def problem(reply: Reply, status: int, code: str) -> dict[str, Any]:
    """The problem document of a refusal."""
    assert reply.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = reply.json
    assert (reply.status, document["status"], document["code"]) == (status, status, code)
    return document


async def test_the_public_paths_need_no_credentials(port: Port) -> None:
    ask = port.asker(peer="203.0.113.7")
    ask.user = None
    for path, body in [("/health", b"ok"), ("/readyz", b'{"ready":true}'), ("/metrics", b"up 1\n")]:
        reply = await ask("GET", path)
        assert (reply.status, reply.body) == (200, body)
    assert (await ask("GET", "/openapi.json")).status == 200


async def test_every_route_is_in_the_document_and_asks_for_credentials(port: Port) -> None:
    document = (await port.asker()("GET", "/openapi.json")).json
    routes = {
        (documented(route.path), method.lower())
        for route in port.app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert routes == described
    assert len(routes) == len([route for route in port.app.routes if isinstance(route, Route)])
    ask = port.asker()
    ask.user = None
    for path, method in routes:
        public = document["paths"][path][method].get("security") == []
        assert public != path.startswith("/admin"), path
        reply = await ask(method.upper(), path.replace("{", "").replace("}", ""), raw=b"{}")
        assert (reply.status == 401) != public, (method, path)
    json.dumps(document)


async def test_the_document_holds_together(port: Port) -> None:
    document = (await port.asker()("GET", "/openapi.json")).json
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]
    cluster = document["components"]["schemas"]["Cluster"]
    assert cluster["required"] == ["engineKey"]
    assert cluster["additionalProperties"] is False


async def test_clusters(ask: Asker, port: Port) -> None:
    names = [record["name"] for record in (await ask("GET", "/admin/config/clusters")).json]
    assert names == ["east", "files"]
    east = (await ask("GET", "/admin/config/clusters/east")).json
    assert east["config"]["auth"]["password"] == MARKER
    reply = await ask("PUT", "/admin/config/clusters/east", {**east, "maxRunningQueries": 8})
    assert (reply.status, reply.json["maxRunningQueries"]) == (200, 8)
    assert reply.headers["x-queryflux-config-durable"] == "false"
    assert reply.headers["x-queryflux-config-sequence"] == "2"
    assert reply.headers["x-queryflux-note"].startswith("kept in memory: this edit is gone when")
    assert port.applied == 1
    reply = await ask("PATCH", "/admin/config/clusters/east", {"enabled": False, "newName": "west/1"})
    assert (reply.json["name"], reply.json["enabled"]) == ("west/1", False)
    assert (await ask("GET", "/admin/config/clusters/east")).status == 404
    assert (await ask("GET", "/admin/config/clusters/west/1")).status == 200
    reply = await ask("DELETE", "/admin/config/clusters/west/1")
    assert (reply.status, reply.body) == (204, b"")
    problem(await ask("DELETE", "/admin/config/clusters/west/1"), 404, "NOT_FOUND")
    assert (await port.store.load()).tables.groups[0].members == ("files",)


async def test_a_patch_cannot_take_away_what_is_required(ask: Asker) -> None:
    document = problem(
        await ask("PATCH", "/admin/config/clusters/east", {"engineKey": None}), 400, "INVALID_REQUEST"
    )
    assert [(it["path"], it["message"]) for it in document["problems"]] == [("engineKey", "is required")]
    document = problem(
        await ask("PATCH", "/admin/config/groups/bi", {"members": None}), 400, "INVALID_REQUEST"
    )
    assert [(it["path"], it["message"]) for it in document["problems"]] == [("members", "is required")]


async def test_groups(ask: Asker, port: Port) -> None:
    group = {"members": ["east"], "maxRunningQueries": 3, "allowUsers": ["ann"]}
    reply = await ask("PUT", "/admin/config/groups/night", group)
    assert (reply.status, reply.json["allowUsers"], reply.json["cache"]) == (200, ["ann"], None)
    reply = await ask("PATCH", "/admin/config/groups/night", {"newName": "bi"})
    problem(reply, 409, "NAME_TAKEN")
    reply = await ask("PATCH", "/admin/config/groups/bi", {"newName": "day", "maxQueuedQueries": 2})
    assert (reply.json["name"], reply.json["maxQueuedQueries"]) == ("day", 2)
    assert (await ask("GET", "/admin/config/routing")).json["routingFallback"] == "day"
    document = problem(await ask("DELETE", "/admin/config/groups/day"), 409, "IN_USE")
    assert [it["path"] for it in document["problems"]] == ["routingFallback", "routers[0].userToGroup.ann"]
    assert (await ask("DELETE", "/admin/config/groups/night")).status == 204
    names = [record["name"] for record in (await ask("GET", "/admin/config/groups")).json]
    assert names == ["day", "spare"]


async def test_routing_and_settings(ask: Asker) -> None:
    routing = (await ask("GET", "/admin/config/routing")).json
    routing = {"routers": routing["routers"], "routingFallback": "spare"}
    assert (await ask("PUT", "/admin/config/routing", routing)).status == 204
    assert (await ask("GET", "/admin/config/routing")).json["routingFallback"] == "spare"
    wrong = {"routers": [{"type": "queryRegex", "rules": [{"regex": "(", "targetGroup": "bi"}]}]}
    document = problem(await ask("PUT", "/admin/config/routing", wrong), 400, "CONFIG")
    assert document["problems"][0]["path"] == "routers[0].rules[0].regex"
    path = "/admin/config/settings/translation"
    assert (await ask("GET", path)).json == {"mode": "strict"}
    assert (await ask("PATCH", path, {"mode": "bestEffort", "errorOnUnsupported": True})).status == 200
    assert (await ask("GET", path)).json == {"errorOnUnsupported": True}
    assert (await ask("PUT", path, {})).json == {}
    document = problem(await ask("PUT", path, {"mood": "strict"}), 400, "CONFIG")
    assert document["problems"] == [
        {"path": "translation.mood", "message": 'unknown key "mood"', "hint": "did you mean mode?"}
    ]
    document = problem(await ask("GET", "/admin/config/settings/translatoin"), 404, "NOT_FOUND")
    assert document["hint"] == "did you mean translation?"
    assert set((await ask("GET", "/admin/config/settings")).json) >= {"translation", "queryHistory", "auth"}


async def test_the_whole_configuration_changes_at_once_or_not_at_all(ask: Asker, port: Port) -> None:
    whole = (await ask("GET", "/admin/config")).json
    assert (whole["sequence"], whole["durable"]) == (1, False)
    document = whole["document"]
    document["clusters"]["east"]["maxRunningQueries"] = 6
    document["clusterGroups"]["bi"]["maxQueuedQueries"] = 9
    body = {"document": document, "expectedSequence": whole["sequence"]}
    planned = (await ask("PUT", "/admin/config?dryRun=true", body)).json
    assert (planned["dryRun"], planned["sequence"], port.applied) == (True, 1, 0)
    done = (await ask("PUT", "/admin/config", body)).json
    assert done["changes"] == planned["changes"]
    assert done["changes"][0] == {
        "op": "change",
        "path": "clusters.east.maxRunningQueries",
        "before": 5,
        "after": 6,
    }
    assert (done["sequence"], len(done["notes"])) == (2, 1)
    document["clusters"]["east"]["maxRunningQueries"] = 7
    conflict = problem(await ask("PUT", "/admin/config", body), 409, "CONFIG_CHANGED")
    assert "is at 2 now and not at 1" in conflict["detail"]
    document["clusters"]["east"]["endpoint"] = "nowhere"
    document["routingFallback"] = "nobody"
    refused = problem(await ask("PUT", "/admin/config", {"document": document}), 400, "CONFIG")
    assert refused["detail"] == "the configuration would have 2 problems; nothing was changed"
    assert {it["path"] for it in refused["problems"]} == {"clusters.east.endpoint", "routingFallback"}
    assert (await ask("GET", "/admin/config")).json["sequence"] == 2


async def test_a_long_body_is_taken_where_a_whole_configuration_goes(ask: Asker) -> None:
    clusters = {f"c{at}": {"engine": "duckDb", "memoryLimit": "4GB"} for at in range(2000)}
    whole = (await ask("GET", "/admin/config")).json["document"]
    body = {"document": {"clusters": {**whole["clusters"], **clusters}}}
    assert len(json.dumps(body)) > 65536
    assert len((await ask("PUT", "/admin/config", body)).json["changes"]) == 2000


async def test_trying_out_a_cluster(ask: Asker, port: Port) -> None:
    path = "/admin/config/clusters/test"
    config = {"endpoint": "https://new:8443", "auth": {"type": "basic", "username": "a", "password": MARKER}}
    refused = problem(await ask("POST", path, {"engineKey": "trino", "config": config}), 400, "CONFIG")
    assert refused["problems"][0]["path"] == 'clusters."(test)".auth.password'
    body = {"engine_key": "trino", "config": config, "name": "east"}
    assert (await ask("POST", path, body)).json == {"ok": True, "message": "the engine answers"}
    auth = port.live.probed[0].auth
    assert auth is not None
    assert auth.password is not None
    assert auth.password.reveal() == "s3cr3t-1"
    port.live.probe_says = "connection refused"
    assert (await ask("POST", path, body)).json == {"ok": False, "message": "connection refused"}
    assert (await port.store.load()).sequence == 1


async def test_live_clusters(ask: Asker) -> None:
    (state,) = (await ask("GET", "/admin/clusters")).json
    assert state["group_name"] == "bi"
    assert (state["running_queries"], state["queued_queries"], state["is_healthy"]) == (2, 1, True)
    changed = (await ask("PATCH", "/admin/clusters/bi/east", {"max_running_queries": 9})).json
    assert (changed["max_running_queries"], changed["enabled"]) == (9, True)
    problem(await ask("PATCH", "/admin/clusters/bi/west", {"enabled": False}), 404, "NOT_FOUND")
    odd = await ask("PATCH", "/admin/clusters/b%2Fi/5%25%2Feast", {"max_running_queries": 7})
    assert odd.json["max_running_queries"] == 7, "names with slashes"
    problem(await ask("PATCH", "/admin/clusters/a/bi/east", {"enabled": False}), 404, "NOT_FOUND")
    document = problem(
        await ask("PATCH", "/admin/clusters/bi/east", {"maxRunning": 1}), 400, "INVALID_REQUEST"
    )
    assert document["problems"][0]["hint"] == "did you mean max_running_queries?"


async def test_queries(ask: Asker, port: Port) -> None:
    target = (
        "/admin/queries?search=x&status=Success&cluster_group=bi&engine=Trino&user=ann&worker=w&limit=5000"
    )
    (record,) = (await ask("GET", target)).json
    assert (record["proxy_query_id"], record["status"], len(record["sql_preview"])) == ("q0", "Success", 500)
    assert "sql_text" not in record
    wanted, limit, offset = port.history.asked[0]
    assert (wanted.search, wanted.engine, wanted.user, limit, offset) == ("x", "Trino", "ann", 1000, 0)
    assert wanted.worker == "w"
    assert len((await ask("GET", "/admin/queries/q0")).json["sql_text"]) == 607
    problem(await ask("GET", "/admin/queries/q9"), 404, "QUERY_NOT_FOUND")
    document = problem(
        await ask("GET", "/admin/queries?status=Sucess&limt=1&limit=x"), 400, "INVALID_REQUEST"
    )
    assert [(it["path"], it["hint"]) for it in document["problems"]] == [
        ("status", "did you mean Success?"),
        ("limt", "did you mean limit?"),
        ("limit", ""),
    ]


async def test_what_is_counted_is_at_least_nothing(ask: Asker, port: Port) -> None:
    for number in ("-1", "1.5", "1234567890"):
        document = problem(await ask("GET", f"/admin/queries?limit={number}"), 400, "INVALID_REQUEST")
        assert document["problems"][0]["message"] == (
            f'expected a whole number from 0 to 999999999, found "{number}"'
        )
    assert (await ask("GET", "/admin/queries?limit=0")).json == []
    await ask("GET", "/admin/engine-stats?hours=0")
    assert port.history.asked[-1] == port.clock.now() - 3600, "no hour counts as one"


async def test_running_queries_of_other_processes(ask: Asker, port: Port) -> None:
    port.live.elsewhere = {"q0": "qf-b-1"}
    listed = (await ask("GET", "/admin/queries/running")).json
    assert [(it["id"], it["instance_id"]) for it in listed] == [("q0", "qf-b-1"), ("q1", "qf-a-1")]
    port.live.elsewhere = StoreUnavailable("the database cannot be reached")
    reply = await ask("GET", "/admin/queries/running")
    assert [it["id"] for it in reply.json] == ["q1"]
    assert reply.headers["x-queryflux-note"] == (
        "queries of other processes cannot be listed: the database cannot be reached"
    )


async def test_other_processes_are_not_waited_for_long(
    ask: Asker, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent() -> Sequence[RunningQuery]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(queries_service, "ELSEWHERE_SECS", 0.01)
    monkeypatch.setattr(port.live, "running_elsewhere", silent)
    async with asyncio.timeout(5):
        reply = await ask("GET", "/admin/queries/running")
    assert [it["id"] for it in reply.json] == ["q1"]
    assert reply.headers["x-queryflux-note"] == (
        "queries of other processes cannot be listed: no answer within 0.01 s"
    )


async def test_running_queries_and_cancel(ask: Asker, port: Port) -> None:
    (query,) = (await ask("GET", "/admin/queries/running")).json
    assert (query["id"], query["backend_query_id"], query["state"]) == ("q1", "engine-1", "executing")
    assert (await ask("DELETE", "/admin/queries/engine-1")).status == 204
    problem(await ask("DELETE", "/admin/queries/q1"), 404, "QUERY_NOT_FOUND")
    assert (await ask("GET", "/admin/queries/running")).json == []


async def test_figures(ask: Asker, port: Port) -> None:
    assert (await ask("GET", "/admin/stats")).json == {
        "queries_last_hour": 4,
        "error_rate_last_hour": 0.25,
        "avg_duration_ms_last_hour": 12.5,
        "translation_rate_last_hour": 0.5,
    }
    assert (await ask("GET", "/admin/engines")).json == ["DuckDb", "Trino"]
    (row,) = (await ask("GET", "/admin/engine-stats")).json
    assert (row["engine_type"], row["total_queries"]) == ("Trino", 4)
    assert "name" not in row
    (row,) = (await ask("GET", "/admin/group-stats?hours=1000")).json
    assert row["cluster_group"] == "bi"
    now = port.clock.now()
    assert port.history.asked == [now - 3600, now - 24 * 3600, now - 168 * 3600]
    doors = (await ask("GET", "/admin/frontends")).json
    assert (doors["admin_api_port"], doors["protocols"][0]["id"]) == (9000, "trinoHttp")


async def test_bodies_that_are_none(ask: Asker) -> None:
    path = "/admin/config/groups/night"
    reply = await ask("PUT", path, raw=b"{}", headers={"content-type": "text/plain"})
    problem(reply, 415, "NOT_JSON")
    for raw, word in [
        (b" ", "is empty"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "nested more than"),
        (b'{"members":[],"members":[]}', 'the key "members" is set twice'),
        (b'{"maxRunningQueries": NaN}', "NaN is no JSON number"),
        (b"\xff{}", "is not JSON"),
        (b'{"members":["\\ud800"]}', "half a surrogate pair"),
        (b"[1]", "must be a JSON object, not a list"),
    ]:
        assert word in problem(await ask("PUT", path, raw=raw), 400, "INVALID_REQUEST")["detail"]
    document = problem(await ask("PUT", path, {"member": ["east"], "enabled": 1}), 400, "INVALID_REQUEST")
    assert {(it["path"], it["message"], it["hint"]) for it in document["problems"]} == {
        ("member", 'unknown key "member"', "did you mean members?"),
        ("enabled", "expected true or false, found a number", ""),
        ("members", "is required", ""),
    }
    reply = await ask("PUT", path, raw=b'{"x":"' + b"y" * (1 << 20) + b'"}')
    problem(reply, 413, "TOO_LARGE")
    assert reply.headers["connection"] == "close"


async def test_numbers_are_counts(ask: Asker) -> None:
    path = "/admin/clusters/bi/east"
    for number, word in [(-1, "a negative number"), (2**63, "too large a number")]:
        document = problem(await ask("PATCH", path, {"max_running_queries": number}), 400, "INVALID_REQUEST")
        assert document["problems"][0]["message"] == f"expected a whole number, found {word}"
    assert (await ask("PATCH", path, {"max_running_queries": 0})).json["max_running_queries"] == 0


async def test_no_name_and_no_text_has_a_nul(ask: Asker) -> None:
    document = problem(await ask("GET", "/admin/queries?search=a%00b"), 400, "INVALID_REQUEST")
    assert document["problems"][0]["path"] == "search"
    problem(await ask("GET", "/admin/queries/a\0b"), 404, "NOT_FOUND")


async def test_paths_and_methods_that_are_not_there(ask: Asker) -> None:
    problem(await ask("GET", "/admin/nothing"), 404, "NOT_FOUND")
    reply = await ask("POST", "/admin/config/routing", {})
    problem(reply, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in reply.headers["allow"]


async def test_a_fault_of_ours_tells_the_operator_where_to_look(
    ask: Asker, port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(since: float) -> Any:
        raise RuntimeError("the inside of it")

    port.history.summary = broken  # type: ignore[method-assign]
    document = problem(await ask("GET", "/admin/stats"), 500, "INTERNAL")
    mark = document["detail"].rpartition(" ")[2]
    assert mark in caplog.text
    assert "inside" not in json.dumps(document)


async def test_secrets_are_in_no_answer_and_no_log(ask: Asker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    whole = (await ask("GET", "/admin/config")).json["document"]
    whole["clusters"]["east"]["auth"]["password"] = "s3cr3t-2"
    await ask("PUT", "/admin/config?dryRun=true", {"document": whole})
    await ask("PUT", "/admin/config", {"document": whole})
    whole["clusters"]["east"]["auth"] = {"type": "bearer", "token": "s3cr3t-3", "password": "s3cr3t-4"}
    assert (await ask("PUT", "/admin/config", {"document": whole})).status == 400
    users = {"users": {"ann": {"password": "s3cr3t-5"}}}
    assert (await ask("PUT", "/admin/config/settings/auth", {"staticUsers": users})).status == 200
    broken = {"staticUsers": {"users": {"ann": {"password": ["s3cr3t-6"]}}}}
    assert (await ask("PUT", "/admin/config/settings/auth", broken)).status == 400
    await ask("PATCH", "/admin/config/clusters/east", {"config": {"auth": {"password": "s3cr3t-7"}}})
    for path in ("", "/clusters", "/clusters/east", "/settings", "/settings/auth"):
        await ask("GET", f"/admin/config{path}")
    said = b"".join(ask.said).decode() + caplog.text
    assert MARKER in said
    assert "s3cr3t" not in said
