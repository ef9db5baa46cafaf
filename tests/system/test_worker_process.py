"""A worker as a process: its end under SIGTERM, and what it leaves at the control plane."""

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trino

from tests.kit.doors import DOORS, HOST, Refusal
from tests.kit.places import free_port
from tests.kit.process import Process
from tests.kit.serving import Serving, serving
from tests.kit.working import SECRET, get

pytest.importorskip("duckdb", reason="DuckDB is not installed")

POSTGRES = DOORS[1]
SOME_SECONDS = "SELECT count(*) FROM range(800000) AS a(x), range(1000) AS b(y) WHERE x + y = -7"
CENTRAL = f"""
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  workerApi: {{enabled: true, secret: {SECRET}}}
  coordination: {{leaseRenewSecs: 1, leaseExpirySecs: 5}}
  logging: {{level: error}}
clusters:
  duck: {{engine: duckDb, threads: 1, maxRunningQueries: 3}}
clusterGroups:
  main: {{members: [duck]}}
routingFallback: main
"""
LOCAL = """
queryflux:
  role: worker
  workerName: edge-1
  controlPlane: {url: "URL", secretFile: secret}
  coordination: {leaseRenewSecs: 1, leaseExpirySecs: 5}
  opsListener: {host: 127.0.0.1, port: 0}
  shutdownDrainTimeoutSecs: 120
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
"""


@pytest.fixture
def control() -> Iterator[Serving]:
    with serving(CENTRAL) as served:
        yield served


def start(folder: Path, url: str) -> Process:
    (folder / "secret").write_text(SECRET + "\n")
    return Process(folder, LOCAL.replace("URL", url), {})


def admin(served: Serving, path: str) -> Any:
    connection = http.client.HTTPConnection(HOST, served.port("adminApi"), timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": "Basic YWRtaW46YWRtaW4="})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def ready(process: Process) -> int:
    return get(f"http://{HOST}:{process.port('operator port')}/readyz").status


def test_the_end_of_a_worker_under_load(control: Serving, tmp_path: Path) -> None:
    process = start(tmp_path, f"http://{HOST}:{control.port('adminApi')}")
    rows: list[Any] = []

    def ask() -> None:
        with POSTGRES.connect(process.port("postgresWire")) as client:
            rows.append(client.ask(SOME_SECONDS))

    try:
        process.until(lambda: any(" ready" in line for line in process.lines))
        assert ready(process) == 200
        asking = threading.Thread(target=ask)
        asking.start()
        process.until(lambda: process.metrics().get("queryflux_running_queries") == 1)
        process.signal(signal.SIGTERM)
        process.until(lambda: any("draining" in line for line in process.lines))
        answer = get(f"http://{HOST}:{process.port('operator port')}/readyz")
        assert (answer.status, answer.json["code"]) == (503, "SHUTTING_DOWN")
        with pytest.raises(Refusal, match="shutting down"), POSTGRES.connect(process.port("postgresWire")):
            pass
        asking.join(60)
        assert rows == [[(0,)]], "the query that ran has ended in its own time"
        assert process.wait() == 0, "".join(process.lines)
    finally:
        process.end()
    assert SECRET not in "".join(process.lines)
    assert {file.name for file in tmp_path.iterdir()} == {"queryflux.yaml", "secret"}, "nothing goes to disk"
    records = admin(control, "/admin/queries?worker=edge-1")
    assert SOME_SECONDS in json.dumps(records), "the last flush came after the drain"
    (row,) = admin(control, "/admin/workers")["workers"]
    assert (row["workerName"], row["phase"], row["online"]) == ("edge-1", "stopped", False)


def test_a_worker_without_a_configuration_ends_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, f"http://{HOST}:{free_port()}")
    try:
        process.until(lambda: any("does not give the configuration" in line for line in process.lines))
        assert ready(process) == 503
        port = process.port("trinoHttp")
        connection = trino.dbapi.connect(  # type: ignore[no-untyped-call]
            HOST, port, user="ann", max_attempts=1
        )
        with pytest.raises(trino.exceptions.Http503Error):
            connection.cursor().execute("SELECT 1")
        process.signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.end()
