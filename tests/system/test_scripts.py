"""Scripts at work behind real doors: they choose groups and change SQL, and what they do wrong is seen."""

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trino

from queryflux.history.record import QueryRecord
from queryflux.scripts.limits import Limits
from tests.kit.doors import DOORS, Door, Refusal
from tests.kit.postgres import DATABASE, shared_server
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

USERS = """
auth:
  provider: static
  required: true
  allowPlaintextCredentials: true
  staticUsers:
    users:
      ann: {password: a, groups: [science]}
      bob: {password: b, groups: [sales]}
"""
ROUTED = """
clusters:
  lab: {engine: duckDb}
  shop: {engine: duckDb}
clusterGroups:
  science-pool: {members: [lab]}
  sales-pool: {members: [shop]}
  nobody: {members: [shop], authorization: {allowUsers: [zoe]}}
routers:
  - type: pythonScript
    script: |
      import time
      def route(query, ctx):
          if "hang" in query:
              while True:
                  pass
          if "crash" in query:
              import os
              os._exit(1)
          if "wrong" in query:
              return {"": "", "list": ["a"], "where": "nowhere"}[query.partition("wrong ")[2]]
          if "raise" in query:
              raise ValueError(query)
          if "forbidden" in query:
              return "nobody"
          return "science-pool" if "science" in (ctx["auth"] or {}).get("groups", []) else None
  - type: queryRegex
    rules: [{regex: "(?i)no more", action: deny, error: "not here"}]
routingFallback: sales-pool
"""


def connect(run: Serving, user: str = "ann") -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(
        host="127.0.0.1",
        port=run.port("postgresWire"),
        user=user,
        password={"ann": "a", "bob": "b"}.get(user),
        dbname="x",
        autocommit=True,
    )


def ask(run: Serving, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of a request to the operator port."""
    credentials = base64.b64encode(b"admin:admin").decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{run.port('adminApi')}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as reply:
            text = reply.read()
            return reply.status, json.loads(text) if text[:1] in (b"{", b"[") else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def last(run: Serving) -> QueryRecord:
    return run.records[-1]


@pytest.fixture(scope="module")
def routed() -> Iterator[Serving]:
    with serving(ROUTED + USERS) as run:
        yield run


def test_a_script_chooses_the_group_by_the_users_groups(routed: Serving) -> None:
    for user, group in (("ann", "science-pool"), ("bob", "sales-pool")):
        with connect(routed, user) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
            assert last(routed).cluster_group == group
            assert connection.execute("select %s::int", (7,)).fetchone() == (7,)
            assert last(routed).cluster_group == group
    trace = next(it.trace for it in routed.records if it.cluster_group == "science-pool")
    assert trace is not None
    assert trace()["routers"] == [
        {
            "type": "pythonScript",
            "matched": True,
            "detail": "routers[0].script gave science-pool",
            "result": "science-pool",
        }
    ]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_every_door_asks_scripts(door: Door) -> None:
    yaml = """
clusters: {one: {engine: duckDb}}
clusterGroups: {a: {members: [one]}, b: {members: [one]}}
routers:
  - type: pythonScript
    script: |
      def route(query, ctx):
          return "b" if ctx["protocol"] == "PROTOCOL" and "7" in query else "a" if "8" in query else ""
translation:
  pythonScripts: ["def transform(sql, src, dst): return sql.replace('7', '9')"]
""".replace("PROTOCOL", door.name)
    with serving(yaml) as run, door.connect(run.port(door.name)) as client:
        fixed = 9 if door.name != "flightSql" else 7  # a client without a dialect gets no fix-ups
        assert [tuple(row) for row in client.ask("select 7")] == [(fixed,)]
        assert last(run).cluster_group == "b"
        assert [tuple(row) for row in client.ask("select 8")] == [(8,)]
        assert last(run).cluster_group == "a"
        with pytest.raises(Refusal, match="gave an empty name"):
            client.ask("select 1")
        run.assert_idle()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Scripts may take so long that there is time to look at what happens meanwhile."""
    monkeypatch.setattr("queryflux.scripts.host.Limits", partial(Limits, call_secs=PATIENCE_SECS))
    with serving(ROUTED + USERS) as run:
        yield run


PATIENCE_SECS = 3.0


def test_a_query_is_cancelled_while_its_script_is_asked(patient: Serving) -> None:
    with connect(patient) as connection:

        def cancel() -> None:
            patient.wait_for(lambda: bool(patient.standalone.pipeline.running))
            time.sleep(0.1)
            connection.cancel_safe()

        cancelling = threading.Thread(target=cancel)
        cancelling.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("select 'hang' as cancelled")
        cancelling.join()
        assert last(patient).reason == "cancelled"
    patient.assert_idle(2 * PATIENCE_SECS + 10)


def test_the_catalog_is_that_of_the_scripts_group(routed: Serving) -> None:
    with connect(routed) as connection:
        connection.execute("create table only_in_the_lab (id int)")
    question = "select count(*) from information_schema.tables where table_name = 'only_in_the_lab'"
    with connect(routed) as connection:
        assert connection.execute(question).fetchone() == (1,)
    with connect(routed, "bob") as connection:
        assert connection.execute(question).fetchone() == (0,)


def test_a_script_sees_headers_and_the_catalog_of_a_trino_client() -> None:
    script = """
routers:
  - type: pythonScript
    script: |
      def route(query, ctx):
          seen = (ctx["protocol"], ctx["user"], ctx["database"], ctx["auth"], ctx["extra"]["x-trino-source"])
          return "b" if seen == ("trinoHttp", "ann", "lake", None, "dashboards") else None
"""
    clusters = "clusters: {one: {engine: duckDb}}\nclusterGroups: {a: {members: [one]}, b: {members: [one]}}"
    with serving(clusters + script) as run:
        make: Any = trino.dbapi.connect
        made = make(
            host="127.0.0.1", port=run.port("trinoHttp"), user="ann", catalog="lake", source="dashboards"
        )
        cursor = made.cursor()
        cursor.execute("select 1")
        assert cursor.fetchall() == [[1]]
        assert last(run).cluster_group == "b"


@pytest.mark.parametrize(
    ("sql", "told", "kept"),
    [
        ("select 'hang'", "routers[0].script: it took longer than 0.25 s", "it took longer"),
        ("select 'crash'", "it ended the script process (with status 1)", "with status 1"),
        ("select 'raise'", "routers[0].script: line 12: ValueError", "ValueError: select 'raise'"),
        ("select 'wrong '", "KeyError", "KeyError"),
        ("wrong ", "gave an empty name", "gave an empty name"),
        ("wrong list", "gave list, and not a group or None", "gave list"),
        ("wrong where", "gave 'nowhere', and there is no such cluster group", "nowhere"),
    ],
)
def test_a_rule_that_fails_refuses_the_query(routed: Serving, sql: str, told: str, kept: str) -> None:
    with connect(routed) as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(sql.encode())
        assert told in str(caught.value)
        assert "select 'raise'" not in str(caught.value)  # an exception's own words are the operator's
        record = last(routed)
        assert record.trace is not None
        steps = record.trace()["routers"]
        assert steps[0]["matched"] is False
        assert kept in steps[0]["error"]
        assert connection.execute("select 2").fetchone() == (2,)
    routed.assert_idle()


def test_what_a_script_chooses_has_still_to_be_allowed(routed: Serving) -> None:
    with connect(routed) as connection, pytest.raises(psycopg.Error, match="may not use cluster group"):
        connection.execute("select 'forbidden'")


def test_a_transaction_stays_where_its_script_sent_it_and_is_denied_what_rules_deny(routed: Serving) -> None:
    with connect(routed, "bob") as connection:
        connection.execute("begin")
        connection.execute("select 1")
        with pytest.raises(psycopg.Error, match="not here"):
            connection.execute("select 'no more'")
        connection.execute("rollback")
    routed.assert_idle()


def test_a_script_that_hangs_does_not_hold_up_the_process(patient: Serving) -> None:
    slowest, stop = 0.0, threading.Event()

    def look() -> None:
        nonlocal slowest
        while not stop.is_set():
            began = time.monotonic()
            ask(patient, "GET", "/health")
            slowest = max(slowest, time.monotonic() - began)

    asking = threading.Thread(target=look)
    with connect(patient) as connection:
        asking.start()
        with pytest.raises(psycopg.Error, match="took longer"):
            connection.execute("select 'hang'")
        stop.set()
        asking.join()
    assert 0 < slowest < PATIENCE_SECS / 2


FIX = """
translation:
  mode: MODE
  pythonScripts:
    - |
      def transform(sql, src, dst):
          if "fail" in sql:
              raise KeyError("secret detail")
          return sql.replace("legacy_orders", "orders")
    - |
      def transform(sql, src, dst):
          return sql if "number" in sql else sql.replace("SOURCE", src).replace("TARGET", dst)
scripts:
  shout: {kind: translation_fixup, body: "def transform(sql, src, dst): return sql.replace('hey', 'HEY')"}
"""


@pytest.fixture(scope="module")
def fixed() -> Iterator[Serving]:
    clusters = """
clusters: {duck: {engine: duckDb}}
clusterGroups:
  main: {members: [duck], translationScripts: [shout]}
  plain: {members: [duck]}
routers: [{type: queryRegex, rules: [{regex: plain, targetGroup: plain}]}]
routingFallback: main
"""
    with serving(clusters + FIX.replace("MODE", "bestEffort")) as run:
        with connect(run) as connection:
            connection.execute("create table orders (number int)")
            connection.execute("insert into orders values (41), (42)")
        yield run


def test_scripts_change_sql_after_translation_in_order(fixed: Serving) -> None:
    with connect(fixed) as connection:
        assert connection.execute("select max(number) from legacy_orders").fetchone() == (42,)
        record = last(fixed)
        assert record.translated_sql is not None
        assert "legacy" not in record.translated_sql
        assert connection.execute("select 'SOURCE TARGET'").fetchone() == ("postgres duckdb",)
        assert connection.execute("select 'hey'").fetchone() == ("HEY",)
        assert connection.execute("select 'hey plain'").fetchone() == ("hey plain",)
        sql = "select number from legacy_orders where number > %s"
        assert connection.execute(sql, (41,), prepare=True).fetchone() == (42,)


def test_a_script_that_fails_forwards_what_the_client_wrote(fixed: Serving) -> None:
    with connect(fixed) as connection:
        assert connection.execute("select 'fail SOURCE'").fetchone() == ("fail SOURCE",)
        record = last(fixed)
        assert record.translation is not None
        assert (record.translation.status, record.translation.reason) == ("no", "transpile_error")


def test_the_log_says_which_script_failed_why_and_for_which_query(caplog: pytest.LogCaptureFixture) -> None:
    scripts = """
clusters: {one: {engine: duckDb}}
clusterGroups: {main: {members: [one]}}
routingFallback: main
routers:
  - {type: pythonScript, script: "def route(query, ctx):\\n  return {}[query] if 'lost' in query else None"}
translation: {pythonScripts: ["def transform(sql, src, dst):\\n  return sql if 'kept' in sql else 1 / 0"]}
"""
    with serving(scripts) as run, connect(run) as connection:
        for _ in range(3):
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 'lost'")
        refused = run.records[0].proxy_query_id
        assert connection.execute("select 'else'").fetchone() == ("else",)
        forwarded = last(run).proxy_query_id
        assert connection.execute("select 'kept'").fetchone() == ("kept",)
    assert [record.getMessage() for record in caplog.records if "script" in record.getMessage()] == [
        f"a script failed for {refused}: routers[0].script: line 2: KeyError",
        f"a script failed for {forwarded}: translation.pythonScripts[0]: line 2: ZeroDivisionError",
    ]


def test_a_script_that_fails_refuses_the_query_where_translation_is_strict() -> None:
    clusters = "clusters: {duck: {engine: duckDb}}\nclusterGroups: {main: {members: [duck]}}"
    with serving(clusters + FIX.replace("MODE", "strict")) as run, connect(run) as connection:
        with pytest.raises(psycopg.errors.SyntaxError) as caught:
            connection.execute("select 'fail'")
        assert "translation.pythonScripts[0]: line 3: KeyError" in str(caught.value)
        assert "secret detail" not in str(caught.value)
        assert connection.execute("select 'SOURCE'").fetchone() == ("postgres",)
        run.assert_idle()


def test_scripts_change_sql_also_between_two_that_speak_postgresql() -> None:
    server = shared_server()
    yaml = f"""
clusters:
  pg:
    engine: postgres
    endpoint: "{server.host}:{server.port}"
    database: {DATABASE}
    auth: {{type: basic, username: trusted, password: none}}
clusterGroups: {{main: {{members: [pg]}}}}
"""
    with serving(yaml + FIX.replace("MODE", "strict")) as run, connect(run) as connection:
        assert connection.execute("select 'SOURCE TARGET'").fetchone() == ("postgres postgres",)
        sql = "select 'TARGET', n from generate_series(1, %s) as g (n)"
        for _ in range(8):  # also when the driver has prepared it
            assert connection.execute(sql, (3,)).fetchall() == [("postgres", n) for n in (1, 2, 3)]
        with connection.transaction():
            assert connection.execute("select 'TARGET'", prepare=True).fetchone() == ("postgres",)
        assert last(run).translated_sql == "select 'postgres'"


def test_variants_are_clusters_of_their_own(tmp_path: Path) -> None:
    yaml = f"""
clusters:
  duck:
    engine: duckDb
    variants:
      - {{name: a, overrides: {{databasePath: {tmp_path}/a.duckdb}}, maxRunningQueries: 2}}
      - {{name: b, overrides: {{databasePath: {tmp_path}/b.duckdb}}}}
clusterGroups: {{a: {{members: ["duck::a"]}}, b: {{members: ["duck::b"]}}}}
routers: [{{type: queryRegex, rules: [{{regex: in_b, targetGroup: b}}]}}]
routingFallback: a
"""
    with serving(yaml) as run, connect(run) as connection:
        connection.execute("create table in_b (n int)")
        assert last(run).cluster_name == "duck::b"
        assert connection.execute("select 1").fetchone() == (1,)
        assert last(run).cluster_name == "duck::a"
        _, states = ask(run, "GET", "/admin/clusters")
        limits = {state["cluster_name"]: state["max_running_queries"] for state in states}
        assert limits == {"duck::a": 2, "duck::b": None}


def test_an_edit_brings_a_script_and_a_bad_one_changes_nothing() -> None:
    clusters = "clusters: {one: {engine: duckDb}}\nclusterGroups: {a: {members: [one]}, b: {members: [one]}}"
    with serving(clusters + "\nroutingFallback: a") as run, connect(run) as connection:

        def edit(method: str, path: str, body: object = None) -> tuple[int, Any]:
            return ask(run, method, f"/admin/config{path}", body)

        router = {"type": "pythonScript", "script": "def route(query, ctx):\n    return 'b'"}
        assert edit("PUT", "/routing", {"routers": [router]})[0] == 204
        connection.execute("select 1")
        assert last(run).cluster_group == "b"
        bad = {"type": "pythonScript", "script": "def route(query, ctx):\n    retrun 'a'"}
        status, refused = edit("PUT", "/routing", {"routers": [bad]})
        assert status == 400
        (problem,) = refused["problems"]
        assert problem["path"] == "routers[0].script"
        assert "line 2: SyntaxError" in problem["message"]
        assert edit("PUT", "/routing", {"routers": [{**router, "scriptFile": "/etc/passwd"}]})[0] == 400
        body = "def transform(sql, src, dst): return sql.replace('1', '2')"
        script = {"name": "two", "kind": "translation_fixup", "body": body}
        status, record = edit("POST", "/scripts", script)
        assert status == 201
        assert edit("PATCH", "/groups/b", {"translationScriptIds": [record["id"]]})[0] == 200
        assert connection.execute("select 1").fetchone() == (2,)
        assert edit("DELETE", f"/scripts/{record['id']}")[0] == 409
        host = run.standalone.generation.scripts
        assert host is not None
        assert edit("PUT", "/routing", {"routers": []})[0] == 204
        run.wait_for(lambda: host.pid is None)  # the process of the scripts before has ended
        connection.execute("select 1")
        assert last(run).cluster_group == "a"
