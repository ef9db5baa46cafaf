"""Several workers behind one address: whatever connection a client's next request comes by, it is answered
by the process that can; what a killed worker held is gone at once, and the rest goes on."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.flight as flight
import pymysql
import pytest
import requests
import trino

from queryflux.app.parent import Parent
from queryflux.app.signs import Patience
from queryflux.config.listeners import AdminApiConfig, FrontendsConfig, ListenerConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message, encode
from tests.kit.cores import (
    DOORS,
    DUCK,
    SHORT,
    TRINO_ALONE,
    Cores,
    Worker,
    cores,
    directories,
    lives,
    temporary,
)
from tests.kit.databases import DATABASES, new_database
from tests.kit.doors import HOST
from tests.kit.places import free_port
from tests.kit.trino import shared_server

pytest.importorskip("duckdb", reason="DuckDB is not installed")

ENDLESS = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE x + y = -7"
SOME_SECONDS = "SELECT count(*) FROM range(1000000) AS a(x), range(1000) AS b(y) WHERE x + y = -7"
TIME_TO_END = "shutdownDrainTimeoutSecs: 120"
"""More than such a query takes on a machine that is busy with something else."""
WIDE = "SELECT n, repeat('x', 100) FROM UNNEST(sequence(1, 30000)) AS t(n)"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cores]:
    text = DOORS + DUCK.replace("LIMIT", "16")
    with cores(tmp_path_factory.mktemp("cores"), patient(text)) as running:
        yield running


def patient(text: str) -> str:
    """A configuration whose drain waits for queries of some seconds."""
    assert "shutdownDrainTimeoutSecs: 10" in text
    return text.replace("shutdownDrainTimeoutSecs: 10", TIME_TO_END)


def postgres(served: Cores) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(
        host=HOST,
        port=served.port("postgresWire"),
        user="ann",
        dbname="x",
        sslmode="disable",
        autocommit=True,
        connect_timeout=20,
    )


def mysql(served: Cores) -> Any:
    return pymysql.connect(host=HOST, port=served.port("mysqlWire"), user="ann", connect_timeout=20)


def ask(
    served: Cores, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, Any, Any]:
    """One request to the Trino door on a connection of its own: status, headers, document."""
    sent = {"X-Trino-User": "ann", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection = http.client.HTTPConnection(HOST, served.port("trinoHttp"), timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        content = response.read()
    return response.status, response.headers, json.loads(content) if content else {}


def path_of(page: Any) -> str:
    path: str = urlsplit(page["nextUri"]).path
    return path


def begin(served: Cores, sql: str = ENDLESS) -> Any:
    """A statement that runs, and its page."""
    _, _, page = ask(served, "POST", "/v1/statement", sql)
    assert "nextUri" in page, page
    return page


def begin_all(served: Cores, count: int, sql: str = ENDLESS) -> list[Any]:
    """So many of them."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: begin(served, sql), range(count)))


def executing(served: Cores) -> list[str]:
    """Ids of the queries that have a place."""
    return [query["id"] for query in served.running() if query["state"] == "executing"]


def tag_of(query_id: str) -> str:
    return query_id.rpartition("_")[2]


# Connections.


def test_connections_that_stay_are_spread_over_the_workers(served: Cores) -> None:
    def open_at() -> list[int]:
        part = 'protocol="PostgresWire"'
        return [int(worker.metric("queryflux_connections", part)) for worker in served.workers()]

    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(postgres(served))
        assert sum(open_at()) == 16
        assert min(open_at()) >= 5, open_at()


# Trino.


def anew(served: Cores) -> Any:
    """A real client that connects anew for each request."""
    session = requests.Session()
    session.headers["Connection"] = "close"
    connect: Any = trino.dbapi.connect
    return connect(host=HOST, port=served.port("trinoHttp"), user="ann", http_session=session)


def test_a_real_client_that_connects_anew_for_each_request_gets_every_query(served: Cores) -> None:
    connection = anew(served)

    def query(number: int) -> tuple[str, int]:
        cursor = connection.cursor()
        rows = cursor.execute(WIDE.replace("30000", str(30000 + number))).fetchall()
        assert [row[0] for row in rows] == list(range(1, 30001 + number))
        return tag_of(cursor.query_id), number

    with ThreadPoolExecutor(4) as pool:
        tags = {tag for tag, _ in pool.map(query, range(12))}
    assert tags == {worker.tag for worker in served.workers()}


def test_pages_of_a_coordinator_are_passed_on_from_whoever_relays_them(tmp_path: Path) -> None:
    coordinator = shared_server()
    lake = f"""
clusters: {{lake: {{engine: trino, endpoint: "{coordinator.url}"}}}}
clusterGroups: {{main: {{members: [lake]}}}}
routingFallback: main
"""
    with cores(tmp_path, TRINO_ALONE + lake) as served:

        def keys(_: int) -> tuple[str, int]:
            connection = anew(served)
            cursor = connection.cursor()
            rows = cursor.execute("SELECT o_orderkey FROM tpch.tiny.orders").fetchall()
            return tag_of(cursor.info_uri), len({row[0] for row in rows})

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(keys, range(12)))
        assert {count for _, count in found} == {15_000}
        assert {tag for tag, _ in found} == {worker.tag for worker in served.workers()}
        name, part = "queryflux_sibling_questions_total", 'outcome="answered",question="trino"'
        assert min(worker.metric(name, part) for worker in served.workers()) > 0


def test_polls_signs_of_life_and_ends_reach_the_owner_from_anywhere(served: Cores) -> None:
    page = begin(served)
    query_id = page["id"]
    for _ in range(3):
        status, _, page = ask(served, "GET", path_of(page))
        assert (status, page["id"]) == (200, query_id)
    assert {ask(served, "HEAD", path_of(page))[0] for _ in range(4)} == {200}
    documents = [ask(served, "GET", f"/v1/query/{query_id}")[2] for _ in range(4)]
    assert {document["state"] for document in documents} <= {"RUNNING", "PAGING"}
    assert ask(served, "GET", path_of(page), X_Trino_User="eve")[0] == 403
    guess = path_of(page).replace(path_of(page).split("/")[6], "0" * 32)
    assert {ask(served, "GET", guess)[0] for _ in range(4)} == {404}
    assert ask(served, "DELETE", f"/v1/query/{query_id}")[0] == 204
    assert query_id not in [query["id"] for query in served.running()]


def test_a_transaction_is_one_wherever_its_statements_arrive(served: Cores) -> None:
    _, headers, page = ask(
        served, "POST", "/v1/statement", "START TRANSACTION", X_Trino_Transaction_Id="NONE"
    )
    assert "error" not in page, page
    named = headers["X-Trino-Started-Transaction-Id"]
    tags = set()
    for number in range(6):
        _, _, page = ask(served, "POST", "/v1/statement", f"SELECT {number}", X_Trino_Transaction_Id=named)
        rows = page.get("data", [])
        tags.add(tag_of(page["id"]))
        while "nextUri" in page:
            _, _, page = ask(served, "GET", path_of(page))
            rows += page.get("data", [])
        assert rows == [[number]], page
    assert tags == {tag_of(named)}
    _, headers, page = ask(served, "POST", "/v1/statement", "COMMIT", X_Trino_Transaction_Id=named)
    assert headers["X-Trino-Clear-Transaction-Id"] == "true", page


# PostgreSQL and MySQL.


def test_every_ctrl_c_of_postgres_lands(served: Cores) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        connections = [stack.enter_context(postgres(served)) for _ in range(8)]
        running = [pool.submit(connection.execute, ENDLESS) for connection in connections]
        served.until(lambda: len(served.running()) == 8)
        for connection in connections:
            connection.cancel_safe(timeout=20)
        for one in running:
            assert isinstance(one.exception(20), psycopg.errors.QueryCanceled)
    served.until(lambda: served.running() == [])


def test_kill_lands_and_the_processlist_is_everybodys(served: Cores) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        connections = [stack.enter_context(mysql(served)) for _ in range(6)]
        running = [pool.submit(connection.query, ENDLESS) for connection in connections]
        served.until(lambda: len(served.running()) == 6)
        numbers = {connection.thread_id() for connection in connections}
        assert len({number >> 20 for number in numbers}) == 2
        for number in numbers:
            with mysql(served) as other, other.cursor() as cursor:
                cursor.execute("SHOW PROCESSLIST")
                assert numbers <= {row[0] for row in cursor.fetchall()}
                cursor.execute(f"KILL QUERY {number}")
        for one in running:
            error = one.exception(20)
            assert isinstance(error, pymysql.err.OperationalError)
            assert error.args[0] == 1317
        for connection in connections:
            connection.ping(reconnect=False)  # only its query was ended
        with mysql(served) as other, other.cursor() as cursor:
            cursor.execute(f"KILL {connections[0].thread_id()}")
            with pytest.raises(pymysql.err.OperationalError, match="Unknown thread id"):
                cursor.execute("KILL QUERY 77")
        with pytest.raises(pymysql.err.OperationalError):
            connections[0].ping(reconnect=False)


# Flight SQL.


def at(worker: Worker) -> Any:
    return flight.connect(f"grpc://{HOST}:{worker.ports['flightSql']}")


def drain(reader: Any) -> None:
    while reader.read_chunk() is not None:  # read_all would make of a cancel what Ctrl-C makes of it
        pass


def command(message: Message) -> Any:
    return flight.FlightDescriptor.for_command(m.pack(message))


def test_a_ticket_is_redeemed_and_cancelled_at_any_worker(served: Cores) -> None:
    one, two = served.workers()
    sql = "SELECT range AS n, CAST(range AS VARCHAR) AS t FROM range(1000000)"
    with at(one) as first, at(two) as second:
        info = first.get_flight_info(command(m.CommandStatementQuery(sql)))
        (endpoint,) = info.endpoints
        (location,) = endpoint.locations
        assert location.uri.decode() == f"grpc://{HOST}:{one.ports['flightSql']}"
        table = second.do_get(endpoint.ticket).read_all()
        assert table.num_rows == 1_000_000
        assert table.column("n").to_pylist()[::99_999] == list(range(0, 1_000_000, 99_999))
        with pytest.raises(pa.ArrowKeyError, match="unknown, used or older"):
            second.do_get(endpoint.ticket)
        broken = first.get_flight_info(command(m.CommandStatementQuery("SELECT * FROM nowhere")))
        with pytest.raises(pa.ArrowKeyError, match="nowhere"):
            second.do_get(broken.endpoints[0].ticket)

        endless = first.get_flight_info(
            command(m.CommandStatementQuery("SELECT range FROM range(500000000)"))
        )
        reader = second.do_get(endless.endpoints[0].ticket)
        reader.read_chunk()
        (query,) = served.running()
        assert tag_of(query["id"]) == one.tag
        request = encode(m.CancelFlightInfoRequest(endless.serialize()))
        (said,) = second.do_action(flight.Action("CancelFlightInfo", request))
        assert said.body.to_pybytes() == encode(m.CancelFlightInfoResult(m.CancelStatus.CANCELLED))
        with pytest.raises(pa.ArrowCancelled):
            drain(reader)
    served.until(lambda: served.running() == [])


def test_a_real_flight_client_follows_the_endpoint_at_every_worker(served: Cores) -> None:
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="ADBC's driver is not installed")
    for worker in served.workers():
        url = f"grpc://{HOST}:{worker.ports['flightSql']}"
        with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT sum(range) FROM range(1000)")
            assert cursor.fetchall() == [(499_500,)]


def test_a_passed_on_result_that_nobody_reads_is_not_collected_anywhere(served: Cores) -> None:
    one, two = served.workers()
    with at(one) as first, at(two) as second:
        info = first.get_flight_info(
            command(m.CommandStatementQuery("SELECT range, repeat('x', 100) FROM range(200000000)"))
        )
        before = [memory_of(worker) for worker in (one, two)]
        reader = second.do_get(info.endpoints[0].ticket)
        for _ in range(50):
            reader.read_chunk()
        time.sleep(1)
        grown = [memory_of(worker) - size for worker, size in zip((one, two), before, strict=True)]
        assert max(grown) < 200, grown
        del reader
    served.until(lambda: served.running() == [])


def memory_of(worker: Worker) -> int:
    """Resident, in MiB."""
    status = Path(f"/proc/{worker.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


# Operators.


def test_operators_see_and_end_the_queries_of_all(served: Cores) -> None:
    pages = begin_all(served, 6)
    owners = {tag_of(page["id"]) for page in pages}
    assert owners == {worker.tag for worker in served.workers()}
    served.until(lambda: [query["state"] for query in served.running()] == ["executing"] * 6)
    assert {query["id"] for query in served.running()} == {page["id"] for page in pages}
    (cluster,) = served.admin("/admin/clusters")
    assert (cluster["running_queries"], cluster["is_healthy"]) == (6, True)
    changed = served.admin("/admin/clusters/main/duck", "PATCH", enabled=False)
    assert changed["enabled"] is False
    statuses = {ask(served, "POST", "/v1/statement", "SELECT 1")[2]["stats"]["state"] for _ in range(4)}
    assert statuses == {"FAILED"}
    served.admin("/admin/clusters/main/duck", "PATCH", enabled=True)
    url = f"http://{HOST}:{served.port('operator port')}"
    environ = {**os.environ, "QUERYFLUX_ADMIN_USER": "admin", "QUERYFLUX_ADMIN_PASSWORD": "admin"}
    for page in pages[:2]:
        ended = subprocess.run(
            [sys.executable, "-m", "queryflux.cli", "cancel", page["id"], "--url", url],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    for page in pages[2:]:
        served.admin(f"/admin/queries/{page['id']}", "DELETE")
    assert served.running() == []
    with pytest.raises(urllib.error.HTTPError, match="404"):
        served.admin(f"/admin/queries/{pages[0]['id']}", "DELETE")


# Limits, deaths and ends.


def test_one_worker_that_is_told_to_end_leaves_clients_to_the_others_and_is_replaced(served: Cores) -> None:
    page = begin(served, SOME_SECONDS)
    leaving = served.worker(tag_of(page["id"]))
    os.kill(leaving.pid, signal.SIGTERM)
    served.until(lambda: any(f"{leaving.name}: draining" in line for line in served.lines))
    others = [begin(served) for _ in range(3)]
    assert leaving.tag not in {tag_of(other["id"]) for other in others}
    while "nextUri" in page:
        status, _, page = ask(served, "GET", path_of(page))
        assert status == 200
    assert page["data"] == [[0]]
    served.restarted(leaving)
    for other in others:
        assert ask(served, "DELETE", path_of(other))[0] == 204


def test_a_limit_holds_over_all_workers_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    with cores(tmp_path, patient(TRINO_ALONE + DUCK.replace("LIMIT", "2"))) as served:
        pages = begin_all(served, 6)
        served.until(lambda: len(served.running()) == 6)
        for _ in range(10):
            states = [query["state"] for query in served.running()]
            assert states.count("executing") <= 2
        served.until(lambda: len(executing(served)) == 2)
        killed = served.worker(tag_of(executing(served)[0]))
        lost = [page for page in pages if tag_of(page["id"]) == killed.tag]
        kept = [page for page in pages if tag_of(page["id"]) != killed.tag]
        os.kill(killed.pid, signal.SIGKILL)
        served.until(lambda: any("was ended by signal 9" in line for line in served.lines))
        for page in lost:
            began = time.monotonic()
            status, _, document = ask(served, "GET", path_of(page))
            assert (status, time.monotonic() - began < 2.5) == (404, True), "it was waited for"
            assert "which has gone" in document["error"]["message"]
        for page in kept:
            assert ask(served, "GET", path_of(page))[0] == 200
        # Their places are free at once, not when the leases run out.
        most = min(2, len(kept))
        served.until(lambda: len(executing(served)) == most, 20)
        for page in kept:
            assert ask(served, "DELETE", path_of(page))[0] == 204
        back = served.restarted(killed)
        assert back.tag != killed.tag
        served.until(lambda: back.tag in {tag_of(page["id"]) for page in begin_all(served, 4)})
        check_end(served, tmp_path)


def check_end(served: Cores, folder: Path) -> None:
    """SIGTERM: nothing is left. With queries that run it is sent again, to hurry."""
    busy = bool(served.running())
    pids = [worker.pid for worker in served.workers()]
    assert directories(folder) != []
    served.signal()
    if busy:
        served.until(lambda: sum("draining" in line for line in served.lines) == 3)
        served.signal()
    began = time.monotonic()
    assert served.wait() == 0
    assert time.monotonic() - began < 30
    assert not any(lives(pid) for pid in pids)
    assert directories(folder) == []


def test_a_drain_lets_queries_end_wherever_they_are_asked_for(tmp_path: Path) -> None:
    with cores(tmp_path, patient(TRINO_ALONE + DUCK.replace("LIMIT", "4"))) as served:
        pages = begin_all(served, 2, SOME_SECONDS)
        served.signal()
        served.until(lambda: any("draining" in line for line in served.lines))
        for page in pages:
            while "nextUri" in page:
                status, _, page = ask(served, "GET", path_of(page))
                assert status == 200
            assert page["data"] == [[0]]
        assert served.wait() == 0
        assert directories(tmp_path) == []


def test_nobody_is_ready_without_workers_and_they_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with cores(tmp_path, TRINO_ALONE + DUCK.replace("LIMIT", "4"), count=1) as served:
        assert ready(served) == 200
        for worker in served.workers():
            os.kill(worker.pid, signal.SIGKILL)
        served.until(lambda: ready(served) == 503)
        served.until(lambda: ready(served) == 200)
        pids = [worker.pid for worker in served.workers()]
        begin(served)
        served.signal(signal.SIGKILL)
        deadline = time.monotonic() + 15
        while any(lives(pid) for pid in pids):
            assert time.monotonic() < deadline, "".join(served.lines)
            time.sleep(0.05)
        assert directories(tmp_path) == []


def ready(served: Cores) -> int:
    """What /readyz of the parent says."""
    try:
        with urllib.request.urlopen(
            f"http://{HOST}:{served.port('operator port')}/readyz", timeout=10
        ) as said:
            return int(said.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_what_a_worker_is_given_stands_nowhere_to_be_read(served: Cores, tmp_path: Path) -> None:
    for worker in served.workers():
        line = Path(f"/proc/{worker.pid}/cmdline").read_bytes().split(b"\0")
        assert line[-3] == b"worker-seat"
        assert line[-2].isdigit()
        theirs = Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert theirs == Path(f"/proc/{served.pid}/environ").read_bytes()
    (directory,) = directories(served.folder)
    assert (served.folder / SHORT / directory).stat().st_mode & 0o777 == 0o700


def test_a_worker_that_cannot_start_ends_the_parent_which_says_why(tmp_path: Path) -> None:
    port = free_port()
    with flight.FlightServerBase(f"grpc://{HOST}:{port}"):
        path = tmp_path / "queryflux.yaml"
        taken = DOORS.replace(
            "flightSql: {host: 127.0.0.1, port: 0}", f"flightSql: {{host: 127.0.0.1, port: {port}}}"
        )
        path.write_text(taken + DUCK.replace("LIMIT", "2"), encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, "-m", "queryflux.cli", "serve", "-c", str(path), "--workers", "2"],
            env={**os.environ, "TMPDIR": temporary(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert f"cannot bind {HOST}:{port}" in ended.stderr.splitlines()[-2]
    assert "-1 cannot serve: the flightSql listener" in ended.stderr
    assert directories(tmp_path) == []


@pytest.mark.parametrize("kind", DATABASES[-1:])
def test_workers_of_a_parent_with_a_database(kind: str, tmp_path: Path) -> None:
    with new_database(kind) as database:
        text = (
            patient(TRINO_ALONE)
            + f"  persistence: {{type: postgres, url: '{database.dsn}'}}\n"
            + DUCK.replace("LIMIT", "2")
        )
        with cores(tmp_path, text) as served:
            pages = begin_all(served, 4)
            served.until(lambda: database.leases().get("duck", 0) == 2)
            for page in pages:
                assert ask(served, "GET", path_of(page))[0] == 200
            served.until(lambda: executing(served))
            killed = served.worker(tag_of(executing(served)[0]))
            os.kill(killed.pid, signal.SIGKILL)
            rest = [page for page in pages if tag_of(page["id"]) != killed.tag]
            served.until(lambda: len(executing(served)) == min(2, len(rest)))
            for page in rest:
                ask(served, "DELETE", path_of(page))
            served.until(lambda: database.leases().get("duck", 0) == 0)
            served.until(lambda: served.running() == [])
            check_end(served, tmp_path)
        sql = "SELECT DISTINCT worker FROM query_records"
        names = {row[0] for row in database.rows(sql)}
        assert names <= {worker.name for worker in served.workers()}
        assert names


async def test_a_stopped_worker_is_noticed_and_holds_up_no_end() -> None:
    process = ProcessConfig(
        frontends=FrontendsConfig(trino_http=ListenerConfig(host=HOST, port=0)),
        admin_api=AdminApiConfig(host=HOST, port=0),
        shutdown_drain_timeout_secs=1,
    )
    patience = Patience(sign=0.2, silent=1.0, dead=60, last=0.5)
    parent = Parent(RootConfig(queryflux=process), Snapshot(), 1, patience=patience)

    async def ready_workers(count: int) -> None:
        async with asyncio.timeout(60):
            while f"queryflux_ready_workers {count}.0" not in parent.exposition()[0].decode():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    try:
        await parent.start()
        await ready_workers(1)
        pid = parent.supervisor._children[0].process.pid
        os.kill(pid, signal.SIGSTOP)
        await ready_workers(0)
        os.kill(pid, signal.SIGCONT)
        await ready_workers(1)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        await parent.drain()
    finally:
        await parent.close()
    assert time.monotonic() - began < 10, "the drain waits 11 s for who is not given up"
    assert not lives(pid)
