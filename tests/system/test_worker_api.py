"""A process that serves workers: what they get of it over the network, from whatever store it has."""

import logging
import socket
import time
from collections.abc import Iterator

import pytest

from queryflux.app import worker_api
from queryflux.fleet import snapshot as wire
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from tests.kit.calling import ROTATED, SECRET, Waiting, WorkerCaller
from tests.kit.doors import HOST
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  workerApi: {enabled: true, secret: SECRET, secrets: [ROTATED]}
  PERSISTENCE
  logging: {level: warning}
clusters:
  duck: {engine: duckDb, threads: 1}
  east: {engine: trino, endpoint: "http://127.0.0.1:9", auth: {type: basic, username: u, password: pw-east}}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
""".replace("SECRET", SECRET).replace("ROTATED", ROTATED)


@pytest.fixture(scope="module", params=["inMemory", "sqlite"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    path = tmp_path_factory.mktemp("state") / "queryflux.db"
    kinds = {"inMemory": "{type: inMemory}", "sqlite": f"{{type: sqlite, path: {path}}}"}
    with serving(YAML.replace("PERSISTENCE", f"persistence: {kinds[request.param]}")) as running:
        yield running


@pytest.fixture
def worker(served: Serving) -> WorkerCaller:
    return WorkerCaller(served.port("adminApi"))


def edit(worker: WorkerCaller, name: str) -> None:
    """One more group."""
    reply = worker.operator("PUT", f"/admin/config/groups/{name}", {"members": ["duck"]})
    assert reply.status in (200, 201), reply.body


def test_the_snapshot_is_there_as_soon_as_the_port_is(worker: WorkerCaller, served: Serving) -> None:
    reply = worker(CONFIG)
    assert reply.status == 200
    assert reply.headers["content-type"] == wire.MEDIA_TYPE
    received = wire.read(reply.body)
    assert reply.headers["etag"] == f'"{received.revision}"'
    assert received.revision == served.standalone.generation.revision
    assert received.content["clusters"]["east"]["auth"]["password"] == "pw-east"
    assert 0 <= float(reply.headers[wire.CONFIRMED_AGE.lower()]) < 60


def test_the_admin_api_and_workers_see_the_same_revision(worker: WorkerCaller) -> None:
    status = worker.operator("GET", "/admin/status").json
    received = worker.snapshot()
    assert status["snapshot"]["revision"] == status["config"]["revision"] == received.revision
    assert (status["snapshot"]["epoch"], status["snapshot"]["sequence"]) == (
        received.epoch,
        received.sequence,
    )
    assert status["snapshot"]["failure"] is None


def test_an_edit_ends_a_wait_and_no_edit_ends_it_with_304(worker: WorkerCaller) -> None:
    before = worker.snapshot()
    assert worker.wait(before, 0.2).status == 304
    waiting = Waiting(worker, before)
    time.sleep(0.1)
    assert not waiting.done
    edit(worker, "more")
    began = time.monotonic()
    reply = waiting.reply()
    assert time.monotonic() - began < 10
    after = wire.read(reply.body)
    assert (after.epoch, after.sequence) == (before.epoch, before.sequence + 1)
    assert "more" in after.content["clusterGroups"]
    assert worker(CONFIG, {"If-None-Match": f'"{after.revision}"'}).status == 304
    assert worker(CONFIG, {"If-None-Match": f'"{before.revision}"'}).status == 200


def test_the_secret_of_workers_and_the_operators_password_open_different_doors(worker: WorkerCaller) -> None:
    assert WorkerCaller(worker.port, ROTATED)(CONFIG).status == 200
    basic = {"Authorization": "Basic YWRtaW46YWRtaW4="}
    for headers in (basic, {"Authorization": "Bearer wrong"}, {"Authorization": ""}):
        for path in (CONFIG, CONFIG_WAIT, "/worker/nothing"):
            assert worker(path, headers).status in (401, 429)
    assert worker("/admin/status").status == 401
    assert worker(CONFIG).status == 200, "wrong secrets of others here lock nobody out"


def test_no_secret_is_shown(worker: WorkerCaller, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        shown = [
            worker.operator("GET", path).body.decode()
            for path in (
                "/admin/status",
                "/admin/config/status",
                "/admin/config",
                "/metrics",
                "/openapi.json",
            )
        ]
        shown.append(worker("/worker/nothing").body.decode())
        shown.append(worker(CONFIG, {"Authorization": "Bearer guess-of-a-secret"}).body.decode())
    for text in (*shown, caplog.text):
        for secret in (SECRET, ROTATED, "guess-of-a-secret", "pw-east"):
            assert secret not in text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{CONFIG_WAIT}?revision=%", 400),
        (f"{CONFIG_WAIT}?revision=%ff", 400),
        (f"{CONFIG_WAIT}?sequence=first", 400),
        ("/worker/config/", 404),
        ("/worker/%ff", 404),
        ("/worker/../admin/status", 404),
    ],
)
def test_what_is_asked_wrongly_is_a_problem(worker: WorkerCaller, path: str, status: int) -> None:
    reply = worker(path)
    assert (reply.status, reply.json["status"]) == (status, status)


def test_head_and_other_methods(worker: WorkerCaller) -> None:
    reply = worker(CONFIG, method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) == len(worker(CONFIG).body)
    assert worker(CONFIG, method="DELETE").status == 405


def test_the_snapshot_stays_young_while_the_store_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_api, "CONFIRM_SECS", 0.05)
    with serving(YAML.replace("PERSISTENCE", "")) as served:
        worker = WorkerCaller(served.port("adminApi"))
        has = worker.snapshot()
        reply, deadline = worker.wait(has, 0.5), time.monotonic() + 20
        assert reply.status == 304
        assert reply.headers["etag"] == f'"{has.revision}"'
        while float(reply.headers[wire.CONFIRMED_AGE.lower()]) >= 0.4:
            assert time.monotonic() < deadline
            reply = worker.wait(has, 0.1)


def test_a_restart_with_the_same_file_is_a_new_epoch_of_the_same_revision() -> None:
    seen = []
    for _ in range(2):
        with serving(YAML.replace("PERSISTENCE", "")) as served:
            worker = WorkerCaller(served.port("adminApi"))
            seen.append(worker.snapshot())
            assert worker.wait(seen[0], 0.2).status == 304, "a worker need not fetch what it has"
    assert seen[0].revision == seen[1].revision
    assert seen[0].epoch != seen[1].epoch


def test_the_drain_answers_waits_at_once_and_readyz_says_so() -> None:
    with serving(YAML.replace("PERSISTENCE", "")) as served:
        worker = WorkerCaller(served.port("adminApi"))
        has = worker.snapshot()
        waiting = Waiting(worker, has)
        workers = served.standalone.workers
        assert workers is not None
        served.wait_for(lambda: workers.state.waiting == 1)
        assert worker("/readyz").status == 200
        began = time.monotonic()
        served.call(served.standalone.drain)
        assert waiting.reply().status == 304
        assert time.monotonic() - began < 10
        assert worker("/readyz").status == 503
        reply = worker.wait(has)
        assert (reply.status, reply.json["code"]) == (503, "SHUTTING_DOWN")
        assert worker(CONFIG).status == 200


def test_a_worker_that_hangs_up_while_it_waits_is_noticed(served: Serving, worker: WorkerCaller) -> None:
    has, workers = worker.snapshot(), served.standalone.workers
    assert workers is not None
    asked = f"{CONFIG_WAIT}?revision={has.revision}&epoch={has.epoch}&sequence={has.sequence}"
    with socket.create_connection((HOST, worker.port)) as connection:
        request = f"GET {asked} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n"
        connection.sendall(request.encode())
        served.wait_for(lambda: workers.state.waiting == 1)
    served.wait_for(lambda: workers.state.waiting == 0)


def test_who_serves_no_workers_has_no_worker_api() -> None:
    with serving(YAML.replace("PERSISTENCE", "").replace("enabled: true", "enabled: false")) as served:
        worker = WorkerCaller(served.port("adminApi"))
        assert worker(CONFIG).status == 404
        assert worker.operator("GET", "/admin/status").json["snapshot"] is None
