"""Workers of a real control plane: before there is a configuration, edits, bad edits, peers, secrets, TLS."""

import asyncio
import http.client
import json
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.kit.doors import DOORS, HOST, Door, Refusal, every_door
from tests.kit.pki import Authority
from tests.kit.places import free_port
from tests.kit.serving import Serving, serving
from tests.kit.working import SECRET, Working, get, worker_file, working

pytest.importorskip("duckdb", reason="DuckDB is not installed")

ENGINE_PASSWORD = "pw-of-the-engine"
CENTRAL = f"""
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: PORT}}
  workerApi: {{enabled: true, secret: {SECRET}}}
  logging: {{level: error}}
clusters:
  duck: {{engine: duckDb, threads: 1}}
  lake:
    engine: trino
    endpoint: "http://127.0.0.1:9"
    auth: {{type: basic, username: svc, password: {ENGINE_PASSWORD}}}
clusterGroups:
  main: {{members: [duck]}}
  lake: {{members: [lake]}}
routingFallback: main
"""
NOT_YET = {"trinoHttp": "503", "postgresWire": "", "mysqlWire": "1053", "flightSql": "Unavailable"}


@contextmanager
def central(port: int = 0) -> Iterator[Serving]:
    with serving(CENTRAL.replace("PORT", str(port))) as served:
        yield served


def url_of(served: Serving) -> str:
    return f"http://{HOST}:{served.port('adminApi')}"


def put(served: Serving, section: str, value: Any) -> None:
    connection = http.client.HTTPConnection(HOST, served.port("adminApi"), timeout=30)
    try:
        headers = {"Authorization": "Basic YWRtaW46YWRtaW4=", "Content-Type": "application/json"}
        connection.request("PUT", f"/admin/config/{section}", json.dumps(value), headers)
        answer = connection.getresponse()
        assert answer.status in (200, 201), answer.read()
    finally:
        connection.close()


@contextmanager
def fleet() -> Iterator[tuple[Serving, Working]]:
    with central() as served, working(worker_file(url_of(served))) as worker:
        worker.until(lambda status: status["ready"])
        yield served, worker


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Serving, Working]]:
    with fleet() as found:
        yield found


# Before the first configuration.


def test_before_the_first_configuration_and_after() -> None:
    port = free_port()
    with working(worker_file(f"http://{HOST}:{port}")) as worker:
        for door in DOORS:
            with pytest.raises(Refusal) as refused, door.connect(worker.port(door.name)) as client:
                client.ask("SELECT 1")
            assert "no configuration is active yet" in refused.value.message
            assert refused.value.code == NOT_YET[door.name], door.name
        with pytest.raises(asyncpg.CannotConnectNowError):  # 57P03, which psycopg does not tell
            asyncio.run(asyncpg.connect(host=HOST, port=worker.port("postgresWire"), user="ann"))
        worker.until(lambda status: status["sync"]["error"])
        ready = worker.get("/readyz")
        assert (ready.status, ready.json["code"]) == (503, "NOT_CONFIGURED")
        assert f"{HOST}:{port}" in ready.json["reason"]
        assert worker.get("/health").body == b"ok"
        assert worker.metric("queryflux_worker_config_stale") == 0
        status = worker.status
        assert (status["role"], status["workerName"], status["phase"]) == ("worker", "w1", "starting")
        assert (status["ready"], status["configState"]) == (False, "unconfigured")
        assert status["activeRevision"] is None
        with central(port) as served:
            began = time.monotonic()
            worker.until(lambda status: status["ready"])
            assert time.monotonic() - began < 10
            assert worker.get("/readyz").status == 200
            assert worker.status["activeRevision"] == served.standalone.generation.revision
            for door in DOORS:
                with door.connect(worker.port(door.name)) as client:
                    assert client.ask("SELECT 41 + 1 AS n") == [(42,)]


def test_the_trino_door_says_when_to_come_back() -> None:
    with working(worker_file(f"http://{HOST}:{free_port()}")) as worker:
        for headers in ({"X-Trino-User": "a"}, {"Authorization": "Basic YTpi"}, {}):
            connection = http.client.HTTPConnection(HOST, worker.port("trinoHttp"), timeout=10)
            connection.request("POST", "/v1/statement", "SELECT 1", headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 503
            assert int(answer.getheader("Retry-After") or 0) > 0
            connection.close()


# Edits.


@every_door
def test_queries_go_by_the_central_configuration(running: tuple[Serving, Working], door: Door) -> None:
    _, worker = running
    with door.connect(worker.port(door.name)) as client:
        assert client.ask("SELECT 6 * 7 AS n") == [(42,)]


def test_an_edit_is_used_at_once_and_sessions_go_on() -> None:
    with fleet() as (served, worker):
        with DOORS[1].connect(worker.port("postgresWire")) as client:
            before = worker.status["activeRevision"]
            engine = worker.worker.generation.clusters["duck"].engine
            put(served, "clusters/more", {"engineKey": "duckDb"})
            began = time.monotonic()
            status = worker.until(lambda status: status["activeRevision"] != before)
            assert time.monotonic() - began < 10
            assert status["activeRevision"] == served.standalone.generation.revision
            assert client.ask("SELECT 1 AS n") == [(1,)]
            assert worker.worker.generation.clusters["duck"].engine is engine, "it stays warm"
        assert set(worker.worker.generation.clusters) == {"duck", "lake", "more"}


def test_a_bad_edit_is_refused_and_named_until_a_good_one() -> None:
    """The control plane has no PostgreSQL door: a bcrypt hash is fine there, and cannot be checked here."""
    with fleet() as (served, worker):
        before = worker.status["activeRevision"]
        bcrypt = "$2b$04$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
        users = {"provider": "static", "staticUsers": {"users": {"ann": {"password": bcrypt}}}}
        put(served, "settings/auth", users)
        status = worker.until(lambda status: status["rejectedRevision"])
        assert status["rejectedRevision"] == served.standalone.generation.revision
        assert status["activeRevision"] == before
        assert status["configState"] == "rejected"
        assert status["rejectedError"].startswith("auth.staticUsers.users.ann.password: a bcrypt hash")
        assert bcrypt not in json.dumps(status)
        failures = 'queryflux_config_reload_failures_total{stage="worker_activate"}'
        assert worker.metric(failures) == 1
        for door in DOORS:
            with door.connect(worker.port(door.name)) as client:
                assert client.ask("SELECT 1 AS n") == [(1,)]
        put(served, "settings/auth", {"provider": "none"})
        status = worker.until(lambda status: status["rejectedRevision"] is None)
        assert (status["activeRevision"], status["configState"]) == (
            served.standalone.generation.revision,
            "active",
        )
        assert worker.metric(failures) == 1, "it was fetched once"


def test_a_worker_whose_first_configuration_cannot_be_used_says_why() -> None:
    bcrypt = "$2b$04$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    with central() as served:
        put(
            served,
            "settings/auth",
            {"provider": "static", "staticUsers": {"users": {"ann": {"password": bcrypt}}}},
        )
        with working(worker_file(url_of(served))) as worker:
            status = worker.until(lambda status: status["rejectedRevision"])
            ready = worker.get("/readyz")
            assert (ready.status, ready.json["code"]) == (503, "NOT_CONFIGURED")
            assert status["rejectedRevision"] in ready.json["reason"]
            assert "a bcrypt hash" in ready.json["reason"]
            assert bcrypt not in ready.json["reason"]


@pytest.mark.parametrize("policy", [{"mode": "strict"}, {"errorOnUnsupported": True}])
def test_the_translation_policy_applies_without_a_restart(policy: dict[str, Any]) -> None:
    lacking = "SELECT n FROM (SELECT 1 AS n) AS t FOR UPDATE"
    with fleet() as (served, worker), DOORS[1].connect(worker.port("postgresWire")) as client:
        assert client.ask(lacking) == [(1,)]
        before = worker.status["activeRevision"]
        put(served, "settings/translation", policy)
        worker.until(lambda status: status["activeRevision"] != before)
        with pytest.raises(Refusal) as refused:
            client.ask(lacking)
        assert refused.value.code == "0A000"


def test_an_outage_changes_nothing_for_queries() -> None:
    port = free_port()
    with working(worker_file(f"http://{HOST}:{port}")) as worker:
        with central(port):
            before = worker.until(lambda status: status["ready"])
        status = worker.until(lambda status: status["sync"]["error"])
        assert (status["ready"], status["stale"]) == (True, False)
        assert status["activeRevision"] == before["activeRevision"]
        with DOORS[1].connect(worker.port("postgresWire")) as client:
            assert client.ask("SELECT 1 AS n") == [(1,)]
        with central(port) as served:
            # A new start of a control plane without a database is a new epoch, of the same revision.
            epoch = worker.until(lambda status: not status["sync"]["error"])["epoch"]
            assert epoch != before["epoch"]
            put(served, "clusters/more", {"engineKey": "duckDb"})
            worker.until(lambda status: status["activeRevision"] != before["activeRevision"])


# Peers.


def test_a_worker_starts_from_a_peer_and_is_confirmed_later() -> None:
    port = free_port()
    url = f"http://{HOST}:{port}"
    bootstrap = ", peerBootstrap: {address: '127.0.0.1:PEER', maxAgeSecs: 3600}"
    first_file = worker_file(url, bootstrap.replace("PEER", "9"))
    with working(first_file) as first:
        with central(port):
            revision = first.until(lambda status: status["ready"])["activeRevision"]
        peer = str(first.port("opsListener"))
        with working(worker_file(url, bootstrap.replace("PEER", peer))) as second:
            status = second.until(lambda status: status["ready"])
            assert (status["configSource"], status["stale"]) == ("peer", True)
            assert (status["configState"], status["activeRevision"]) == ("stale", revision)
            assert second.metric("queryflux_worker_config_stale") == 1
            assert abs(status["confirmedAgeSecs"] - first.status["confirmedAgeSecs"]) < 5, "its true age"
            with DOORS[1].connect(second.port("postgresWire")) as client:
                assert client.ask("SELECT 1 AS n") == [(1,)]
            # And on from there: the age is carried along.
            again = str(second.port("opsListener"))
            before = second.status["confirmedAgeSecs"]
            with working(worker_file(url, bootstrap.replace("PEER", again))) as third:
                status = third.until(lambda status: status["ready"])
                assert status["confirmedAgeSecs"] >= before
                assert status["activeRevision"] == revision
            with central(port):
                status = second.until(lambda status: not status["stale"])
                assert (status["configSource"], status["configState"]) == ("controlPlane", "active")
                assert second.metric("queryflux_worker_config_stale") == 0
                assert status["activeRevision"] == revision


def test_a_peer_gives_its_configuration_to_nobody_else() -> None:
    bootstrap = ", peerBootstrap: {address: '127.0.0.1:9'}"
    with central() as served, working(worker_file(url_of(served), bootstrap)) as worker:
        worker.until(lambda status: status["ready"])
        right = {"Authorization": f"Bearer {SECRET}"}
        answer = worker.get("/worker/peer-config", right)
        assert answer.status == 200
        assert answer.headers["etag"] == f'"{worker.status["activeRevision"]}"'
        assert float(answer.headers["x-queryflux-confirmed-age"]) >= 0
        assert answer.json["clusters"]["lake"]["auth"]["password"] == ENGINE_PASSWORD
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {SECRET}"}):
            refused = worker.get("/worker/peer-config", headers)
            assert (refused.status, refused.json["code"]) == (401, "AUTHENTICATION_FAILED")
            assert ENGINE_PASSWORD.encode() not in refused.body
        statuses = {
            worker.get("/worker/peer-config", {"Authorization": "Bearer y"}).status for _ in range(30)
        }
        assert 429 in statuses, "guessing is slowed down"


def test_without_peer_bootstrap_nothing_is_given(running: tuple[Serving, Working]) -> None:
    _, worker = running
    answer = worker.get("/worker/peer-config", {"Authorization": f"Bearer {SECRET}"})
    assert answer.status == 404


def test_a_peer_that_is_not_ready_or_too_old_says_why(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://{HOST}:{port}"
    bootstrap = ", peerBootstrap: {address: '127.0.0.1:PEER', maxAgeSecs: 1}"
    with working(worker_file(url, bootstrap.replace("PEER", "9"))) as first:
        peer = str(first.port("opsListener"))
        with working(worker_file(url, bootstrap.replace("PEER", peer))) as second:
            worker_error = second.until(lambda status: "peers" in status["sync"]["error"])["sync"]["error"]
            assert "has no configuration or is not ready" in worker_error
            with central(port):
                first.until(lambda status: status["ready"])
                second.until(lambda status: status["ready"])
        time.sleep(1.1)
        with working(worker_file(url, bootstrap.replace("PEER", peer))) as third:
            status = third.until(lambda status: "over maxAgeSecs" in status["sync"]["error"])
            assert not status["ready"]


# Secrets and TLS.


def test_a_wrong_secret_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    wrong = "another-secret-0123456789"
    with central() as served, working(worker_file(url_of(served), secret=wrong)) as worker:
        status = worker.until(lambda status: status["sync"]["error"])
        assert "the shared secret is refused (401)" in status["sync"]["error"]
        assert "refused" in worker.get("/readyz").json["reason"]
        time.sleep(0.5)
        said = [
            record
            for record in caplog.records
            if record.name == "queryflux.worker.sync" and record.levelno >= logging.WARNING
        ]
        assert len(said) == 1
        assert worker.status["sync"]["failures"] == 1, "it is tried again slowly"
        for text in (json.dumps(worker.status), caplog.text, worker.get("/metrics").body.decode()):
            assert wrong not in text
            assert SECRET not in text


def test_nothing_that_operators_see_holds_a_credential(running: tuple[Serving, Working]) -> None:
    _, worker = running
    for path in ("/worker/status", "/readyz", "/metrics", "/health", "/nothing", "/worker/nothing"):
        body = worker.get(path).body.decode()
        for secret in (SECRET, ENGINE_PASSWORD):
            assert secret not in body, path


def test_everything_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    named = authority.server("qf-workers.internal", stem="named")
    tls = f"tls: {{certFile: {pair.cert_file}, keyFile: {pair.key_file}}}"
    ops = f"tls: {{certFile: {named.cert_file}, keyFile: {named.key_file}}}"
    port = free_port()
    config = CENTRAL.replace("port: PORT", f"port: {port}, {tls}")
    trust = f"tls: {{caFile: {authority.ca_file}}}"

    def file(peer: str) -> str:
        named = f"tls: {{caFile: {authority.ca_file}, serverName: qf-workers.internal}}"
        control = f", {trust}, peerBootstrap: {{address: '127.0.0.1:{peer}', {named}}}"
        text = worker_file(f"https://{HOST}:{port}", control)
        return text.replace("opsListener: {host: 127.0.0.1,", f"opsListener: {{host: 127.0.0.1, {ops},")

    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.check_hostname = False
    with working(file("9")) as first:
        where = f"https://{HOST}:{first.port('opsListener')}"
        with serving(config):
            deadline = time.monotonic() + 20
            while get(f"{where}/readyz", context=context).status != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        with working(file(str(first.port("opsListener")))) as second:
            where = f"https://{HOST}:{second.port('opsListener')}"
            deadline = time.monotonic() + 20
            while not (status := get(f"{where}/worker/status", context=context).json)["ready"]:
                assert time.monotonic() < deadline, status
                time.sleep(0.05)
            assert status["configSource"] == "peer", "its certificate has the given name, not the address"


def test_several_addresses(running: tuple[Serving, Working]) -> None:
    served, _ = running
    urls = f", urls: ['http://{HOST}:{served.port('adminApi')}']"
    with working(worker_file(f"http://{HOST}:{free_port()}", urls)) as worker:
        status = worker.until(lambda status: status["ready"])
        assert status["sync"]["failures"] == 0
        assert status["controlPlane"] == f"{HOST}:{served.port('adminApi')}"
