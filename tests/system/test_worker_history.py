"""History of real workers: what ran there is known at the control plane, once, and says what it may say."""

import http.server
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queryflux.fleet.capacity import Acquire
from queryflux.fleet.history import Ingested, decode_batch
from queryflux.fleet.paths import ACQUIRE, INSTANCE_HEADER, WORKER_HEADER
from queryflux.history.stored import StoredQuery
from tests.kit.calling import WorkerCaller
from tests.kit.databases import new_database
from tests.kit.doors import DOORS, HOST, Refusal
from tests.kit.places import free_port
from tests.kit.serving import Serving, serving
from tests.kit.working import SECRET, Working, worker_file, working

pytest.importorskip("duckdb", reason="DuckDB is not installed")

CENTRAL = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: PORT}
  workerApi: {enabled: true, secret: SECRET}
  persistence: PERSISTENCE
  queryHistory: {redaction: POLICY}
  logging: {level: error}
clusters:
  duck: {engine: duckDb, threads: 1}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
""".replace("SECRET", SECRET)
POSTGRES = DOORS[1]


@contextmanager
def central(persistence: str = "{type: inMemory}", port: int = 0, policy: str = "none") -> Iterator[Serving]:
    text = CENTRAL.replace("PERSISTENCE", persistence).replace("PORT", str(port)).replace("POLICY", policy)
    with serving(text) as served:
        yield served


def sending(served_at: int, uplink: str = "{flushIntervalSecs: 1}") -> str:
    """A worker's file whose history goes somewhere."""
    off = "historyUplink: {enabled: false}"
    return worker_file(f"http://{HOST}:{served_at}").replace(off, f"historyUplink: {uplink}")


@contextmanager
def fleet(
    persistence: str = "{type: inMemory}", policy: str = "none", uplink: str = "{flushIntervalSecs: 1}"
) -> Iterator[tuple[Serving, Working]]:
    with (
        central(persistence, policy=policy) as served,
        working(sending(served.port("adminApi"), uplink)) as worker,
    ):
        worker.until(lambda status: status["ready"])
        yield served, worker


def known(served: Serving, worker: str = "w1") -> list[dict[str, Any]]:
    """What operators are shown of a worker's queries, oldest first."""
    reply = WorkerCaller(served.port("adminApi")).operator(
        "GET", f"/admin/queries?worker={worker}&limit=1000"
    )
    rows: list[dict[str, Any]] = reply.json
    return rows[::-1]


def arrived(served: Serving, number: int, seconds: float = 15) -> list[dict[str, Any]]:
    deadline = time.monotonic() + seconds
    while len(rows := known(served)) < number:
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
    return rows


def uplink_of(worker: Working) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(worker.worker.report().history_uplink)
    return found


def ask(worker: Working, *statements: str) -> None:
    with POSTGRES.connect(worker.port(POSTGRES.name)) as client:
        for statement in statements:
            client.ask(statement)


@pytest.mark.parametrize("kind", ["inMemory", "sqlite", "postgres18"])
def test_what_a_worker_ran_is_known_at_its_control_plane(kind: str, tmp_path: Path) -> None:
    if kind == "postgres18":
        with new_database(kind, last=0) as database:
            ask_through_every_door(f"{{type: postgres, url: '{database.dsn}'}}")
            found = database.rows(
                "SELECT DISTINCT r.worker, c.name, g.name FROM query_records r "
                "JOIN cluster_configs c ON c.id = r.cluster_id "
                "JOIN cluster_group_configs g ON g.id = r.cluster_group_id"
            )
            assert found == [("w1", "duck", "main")]
    else:
        ask_through_every_door(
            "{type: inMemory}" if kind == "inMemory" else f"{{type: sqlite, path: '{tmp_path}/qf.db'}}"
        )


def ask_through_every_door(persistence: str) -> None:
    with fleet(persistence) as (served, worker):
        for door in DOORS:
            with door.connect(worker.port(door.name)) as client:
                assert client.ask("SELECT 41 + 1 AS n") == [(42,)]
                with pytest.raises(Refusal):
                    client.ask("SELECT (SELECT x FROM range(5) AS t(x)) AS v")
        rows = arrived(served, 2 * len(DOORS))
        assert [(row["frontend_protocol"], row["status"]) for row in rows] == [
            (door.label, status) for door in DOORS for status in ("Success", "Failed")
        ]
        assert {(row["worker"], row["instance_id"]) for row in rows} == {("w1", worker.worker.instance_id)}
        assert {(row["cluster_group"], row["cluster_name"]) for row in rows} == {("main", "duck")}
        assert known(served, "other") == []
        metrics = WorkerCaller(served.port("adminApi"))("/metrics").body.decode()
        assert "queryflux_queries_total{" not in metrics, "a worker exports its own"
        assert "queryflux_queries_total{" in worker.get("/metrics").body.decode()
        # The control plane has them before its worker hears of that.
        until(lambda: (uplink_of(worker)["delivered"], uplink_of(worker)["waiting"]) == (len(rows), 0))
        assert worker.metric("queryflux_history_records") == 0, "a worker keeps none"


def test_what_waits_is_sent_when_a_worker_stops() -> None:
    with central() as served:
        with working(sending(served.port("adminApi"), "{flushIntervalSecs: 3600}")) as worker:
            worker.until(lambda status: status["ready"])
            ask(worker, *(f"SELECT {number} AS n" for number in range(20)))
        assert len(known(served)) == 20


def test_records_wait_while_the_control_plane_is_away_and_the_oldest_make_room() -> None:
    port = free_port()
    with central(port=port) as served:
        context = working(sending(port, "{flushIntervalSecs: 1, maxBufferedRecords: 10}"))
        worker = context.__enter__()
        worker.until(lambda status: status["ready"])
        ask(worker, "SELECT 0 AS n")
        arrived(served, 1)
        until(lambda: uplink_of(worker)["delivered"] == 1)
    try:
        ask(worker, *(f"SELECT {number} AS n" for number in range(1, 16)))
        until(lambda: uplink_of(worker)["error"] != "")
        until(lambda: (uplink_of(worker)["waiting"], uplink_of(worker)["dropped"]) == (10, 5))
        assert f"{HOST}:{port}" in uplink_of(worker)["error"]
        with central(port=port) as again:
            rows = arrived(again, 10)
            numbers = [int(row["sql_preview"].split()[1]) for row in rows]
            # The oldest make room, but for those that are just being sent.
            assert (numbers, numbers[-1]) == (sorted(numbers), 15)
            until(lambda: (uplink_of(worker)["delivered"], uplink_of(worker)["error"]) == (11, ""))
    finally:
        context.__exit__(None, None, None)


def until(what: Callable[[], object], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


SECRETS = ("SELECT 'geheim' AS n, 4711 AS m", "SELECT CAST('geheim' AS int) AS n")


def test_the_central_policy_decides_what_records_say_also_after_an_edit() -> None:
    with fleet(policy="maskLiterals") as (served, worker):
        ask(worker, SECRETS[0])
        with pytest.raises(Refusal, match="geheim"):
            ask(worker, SECRETS[1])
        good, bad = arrived(served, 2)
        assert "geheim" not in json.dumps([good, bad])
        assert (good["sql_preview"], bad["status"]) == ("select ? as n, ? as m", "Failed")
        assert bad["error_code"] == "ENGINE_ERROR"
        assert bad["error_message"] == "Could not convert string ? to ?"
        before = worker.status["activeRevision"]
        edited = WorkerCaller(served.port("adminApi")).operator(
            "PUT", "/admin/config/settings/queryHistory", {"redaction": "metadata"}
        )
        assert edited.status == 200, edited.body
        worker.until(lambda status: status["activeRevision"] != before)
        with pytest.raises(Refusal, match="geheim"):
            ask(worker, SECRETS[1])
        *old, new = arrived(served, 3)
        assert (new["sql_preview"], new["error_message"], new["routing_trace"]) == ("", None, None)
        assert (new["status"], new["error_code"]) == ("Failed", "ENGINE_ERROR")
        assert [row["sql_preview"] for row in old] == ["", ""], "those in memory are held to it too"


class Collector:
    """An endpoint of somebody else's that takes batches and notes who calls."""

    def __init__(self) -> None:
        self.records: list[StoredQuery] = []
        self.authorizations: set[str | None] = set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = zlib.decompress(body, 31)
                outer.authorizations.add(self.headers.get("authorization"))
                received = decode_batch(body).records
                outer.records += received
                answer = msgspec.json.encode(Ingested(stored=len(received), duplicates=0, rejected=0))
                self.send_response(200 if self.path == "/qf/worker/history" else 404)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self._server.server_port}/qf"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize("own", [None, "of-the-collector"])
def test_another_endpoint_never_gets_the_shared_secret(own: str | None) -> None:
    with Collector() as collector:
        more = f", secret: {own}" if own else ""
        with fleet(uplink=f"{{endpoint: '{collector.url}', flushIntervalSecs: 1{more}}}") as (served, worker):
            ask(worker, *(f"SELECT {number} AS n" for number in range(30)))
            until(lambda: len(collector.records) == 30)
            until(lambda: uplink_of(worker)["delivered"] == 30)
            assert known(served) == []
        assert collector.authorizations == {f"Bearer {own}" if own else None}
        assert {one.worker for one in collector.records} == {"w1"}


def test_the_control_plane_named_as_the_endpoint_gets_its_secret() -> None:
    port = free_port()
    with (
        central(port=port) as served,
        working(sending(port, f"{{endpoint: 'http://{HOST}:{port}', flushIntervalSecs: 1}}")) as worker,
    ):
        worker.until(lambda status: status["ready"])
        ask(worker, "SELECT 1 AS n")
        arrived(served, 1)


def test_turned_off_nothing_is_sent_and_nothing_counts_as_lost() -> None:
    with fleet(uplink="{enabled: false}") as (served, worker):
        ask(worker, "SELECT 1 AS n")
        found = uplink_of(worker)
        assert (found["enabled"], found["delivered"], found["waiting"], found["dropped"]) == (False, 0, 0, 0)
        assert known(served) == []


def test_snapshots_of_clusters_count_the_leases_of_workers() -> None:
    with (
        new_database("postgres18", last=0) as database,
        central(f"{{type: postgres, url: '{database.dsn}'}}") as served,
    ):
        caller = WorkerCaller(served.port("adminApi"), SECRET)
        named = {INSTANCE_HEADER: "edge-1", WORKER_HEADER: "edge"}
        lease = Acquire(query_id="q1", cluster="duck", limit=5)
        reply = caller(ACQUIRE, named, "POST", msgspec.json.encode(lease))
        assert reply.status == 200, reply.body
        until(lambda: ("duck", "main", 1) in snapshots(database.rows), 30)  # the first may have come before


def snapshots(rows: Callable[[str], list[tuple[Any, ...]]]) -> Sequence[tuple[Any, ...]]:
    return rows("SELECT cluster_name, group_name, running_queries FROM cluster_snapshots ORDER BY id")
