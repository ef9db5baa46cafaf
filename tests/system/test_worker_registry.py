"""Workers of a real standalone: they register over the network, and operators see them."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.cli import main
from queryflux.fleet.paths import HEARTBEAT, INSTANCE_HEADER, REGISTER, WORKER_HEADER
from queryflux.fleet.registry import Heartbeat, Phase, encode_heartbeat
from tests.kit.calling import SECRET
from tests.kit.databases import DATABASES, Database, new_database
from tests.kit.doors import HOST
from tests.kit.operators import Reply
from tests.kit.process import Process, process
from tests.kit.replicas import Balancer, Replica
from tests.kit.serving import Serving, serving
from tests.kit.working import get
from tests.system.test_worker_api import YAML

pytest.importorskip("duckdb", reason="DuckDB is not installed")

EDGE = Heartbeat(instance_id="edge-a", worker_name="edge", version="1")


@pytest.fixture
def served() -> Iterator[Serving]:
    with serving(YAML.replace("PERSISTENCE", "persistence: {type: inMemory}")) as running:
        yield running


def call(served: Serving, path: str, report: Heartbeat, secret: str = SECRET) -> Reply:
    connection = http.client.HTTPConnection(HOST, served.port("adminApi"), timeout=30)
    sent = {
        "Authorization": f"Bearer {secret}",
        INSTANCE_HEADER: report.instance_id,
        WORKER_HEADER: report.worker_name,
    }
    try:
        connection.request("POST", path, encode_heartbeat(report), sent)
        answer = connection.getresponse()
        return Reply(answer.status, {}, answer.read())
    finally:
        connection.close()


def status(served: Serving, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["status", "--json", "--url", f"http://{HOST}:{served.port('adminApi')}"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_worker_is_seen_by_operators(served: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(served, REGISTER, EDGE, "wrong").status == 401
    assert call(served, HEARTBEAT, EDGE).json["code"] == "UNKNOWN_WORKER"
    assert call(served, REGISTER, EDGE).status == 200
    document = status(served, capsys)
    revision = served.standalone.generation.revision
    (worker,) = document["workers"]
    assert document["controlPlane"]["serves_workers"] is True
    assert document["publishedRevision"] == revision
    assert (worker["online"], worker["current"], worker["notCurrent"]) == (
        True,
        False,
        "no configuration yet",
    )
    assert call(served, HEARTBEAT, replace(EDGE, number=2, active_revision=revision)).status == 200
    (worker,) = status(served, capsys)["workers"]
    assert (worker["online"], worker["current"]) == (True, True)
    stopped = replace(EDGE, number=3, active_revision=revision, phase=Phase.STOPPED.value)
    assert call(served, HEARTBEAT, stopped).status == 200
    (worker,) = status(served, capsys)["workers"]
    assert worker["online"] is False


CENTRAL = """
queryflux:
  role: controlPlane
  instanceId: central
  frontends: {{trinoHttp: {{host: 127.0.0.1, port: 0}}}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  workerApi: {{secret: {secret}}}
  persistence: {{type: postgres, url: '{url}'}}
clusters: {{duck: {{engine: duckDb, threads: 1}}}}
clusterGroups: {{main: {{members: [duck], maxRunningQueries: 4}}}}
routingFallback: main
"""
WORKER = """
queryflux:
  role: worker
  workerName: {name}
  controlPlane: {{url: 'http://127.0.0.1:{port}', secret: {secret}, heartbeatIntervalSecs: 1}}
  coordination: {{mode: {mode}}}
  historyUplink: {{flushIntervalSecs: 1}}
  opsListener: {{host: 127.0.0.1, port: 0}}
  frontends: {{trinoHttp: {{host: 127.0.0.1, port: 0}}}}
"""


class Fleet:
    """A control plane over a database, and workers that come and go."""

    def __init__(self, folder: Path, database: Database, stack: ExitStack) -> None:
        self.database = database
        self._folder = folder
        self._stack = stack
        text = CENTRAL.format(secret=SECRET, url=database.dsn)
        self.central = stack.enter_context(process(self._place("central"), text))
        self.url = f"http://{HOST}:{self.central.port('operator port')}"

    def _place(self, name: str) -> Path:
        place = self._folder / name
        place.mkdir()
        return place

    def worker(self, name: str, mode: str = "controlPlane", start: int = 1) -> Process:
        """A worker that has its configuration."""
        port = self.central.port("operator port")
        text = WORKER.format(name=name, port=port, secret=SECRET, mode=mode)
        made = self._stack.enter_context(process(self._place(f"{name}-{start}"), text))
        made.until(lambda: get(f"http://{HOST}:{made.port('operator port')}/readyz").status == 200)
        return made

    def ask(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        with redirect_stdout(StringIO()) as out:
            assert main([*arguments, "--json", "--url", self.url]) == 0
        return json.loads(out.getvalue())

    def until(self, **wanted: Any) -> dict[str, dict[str, Any]]:
        """The workers by name, once each of them is as wanted: online or not; None: not listed."""
        found: dict[str, dict[str, Any]] = {}

        def so() -> bool:
            found.clear()
            found.update((it["workerName"], it) for it in self.ask("status")["workers"])
            now = {name: found[name]["online"] if name in found else None for name in wanted}
            return now == wanted

        self.central.until(so)
        return found

    def pass_time(self, seconds: float) -> None:
        """By the database's clock, all workers were heard of so much longer ago."""
        self.database.rows(
            f"UPDATE worker_registry SET last_seen_at = last_seen_at - interval '{seconds} s', "
            f"registered_at = registered_at - interval '{seconds} s'"
        )


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with new_database(DATABASES[-1]) as database, ExitStack() as stack:
        yield Fleet(tmp_path, database, stack)


def test_workers_come_and_go(fleet: Fleet) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    fleet.central.until(lambda: all(it["current"] for it in fleet.until(one=True, two=True).values()))
    workers, status = fleet.until(one=True, two=True), fleet.ask("status")
    assert {it["activeRevision"] for it in workers.values()} == {status["publishedRevision"]}
    assert (workers["one"]["configSource"], workers["one"]["stale"]) == ("controlPlane", False)
    assert workers["one"]["frontends"] == [{"name": "trinoHttp", "port": one.port("trinoHttp")}]
    assert status["warnings"] == []

    # Its history, by its name.
    for worker, sql in ((one, "SELECT 1"), (two, "SELECT 2"), (two, "SELECT 3")):
        Balancer(replica := Replica("", worker.port("trinoHttp"), worker)).finish(
            replica.ask("POST", "/v1/statement", sql).document
        )

    def previews(worker: str) -> list[str]:
        return sorted(row["sql_preview"] for row in fleet.ask("queries", "--worker", worker))

    fleet.central.until(lambda: previews("two") == ["SELECT 2", "SELECT 3"])
    fleet.central.until(lambda: previews("one") == ["SELECT 1"])
    fleet.central.until(lambda: fleet.until(two=True)["two"]["historyUplink"]["delivered"] == 2)

    # One is killed, one stops in order.
    one.signal(signal.SIGKILL)
    one.wait()
    fleet.until(one=True, two=True)  # it may yet be heard of
    fleet.pass_time(31)
    fleet.until(one=False, two=True)
    fleet.central.until(lambda: any("worker one is offline" in line for line in fleet.central.lines))
    two.signal(signal.SIGTERM)
    assert two.wait() == 0
    assert fleet.until(one=False, two=False)["two"]["phase"] == "stopped"

    # One starts again, by limits of its own, beside a third.
    fleet.worker("one", mode="local", start=2)
    assert fleet.until(one=True)["one"]["starts"] == 2
    assert fleet.ask("status")["warnings"] == []
    fleet.worker("three")
    fleet.until(one=True, two=False, three=True)
    (warning,) = fleet.ask("status")["warnings"]
    assert "these go by limits of their own: one" in warning
    fleet.central.until(lambda: any("limits of their own" in line for line in fleet.central.lines))

    # A day later those that have gone are forgotten by operators.
    fleet.pass_time(86400)
    fleet.until(one=True, two=None, three=True)
    assert len([line for line in fleet.central.lines if "limits of their own" in line]) == 1
