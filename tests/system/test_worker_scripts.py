"""Scripts and variants of the control plane at work in a worker, which has no file of them."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.doors import DOORS, HOST, Refusal
from tests.kit.serving import Serving, serving
from tests.kit.working import SECRET, worker_file, working

pytest.importorskip("duckdb", reason="DuckDB is not installed")

CENTRAL = f"""
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  workerApi: {{enabled: true, secret: {SECRET}}}
  logging: {{level: error}}
clusters:
  duck:
    engine: duckDb
    variants: [{{name: a}}, {{name: b}}, {{name: spare, maxRunningQueries: 2}}]
clusterGroups:
  a: {{members: ["duck::a"]}}
  b: {{members: ["duck::b"], translationScripts: [plus]}}
routers: [{{type: pythonScript, scriptFile: FILE}}]
routingFallback: a
scripts:
  plus: {{kind: translation_fixup, body: "def transform(sql, src, dst): return sql.replace('1', '10')"}}
"""
ROUTE = "def route(query, ctx):\n    return 'b' if 'here' in query else None\n"


def edit(served: Serving, method: str, path: str, value: object) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(HOST, served.port("adminApi"), timeout=30)
    try:
        headers = {"Authorization": "Basic YWRtaW46YWRtaW4=", "Content-Type": "application/json"}
        connection.request(method, f"/admin/config/{path}", json.dumps(value), headers)
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None
    finally:
        connection.close()


def test_a_worker_runs_the_scripts_of_its_control_plane(tmp_path: Path) -> None:
    file = tmp_path / "pick.py"
    file.write_text(ROUTE)
    with serving(CENTRAL.replace("FILE", str(file))) as served:
        file.unlink()  # the text travels, and not the name
        url = f"http://{HOST}:{served.port('adminApi')}"
        with working(worker_file(url)) as worker:
            status = worker.until(lambda status: status["ready"])
            assert status["activeRevision"] == served.standalone.generation.revision
            assert set(worker.worker.generation.clusters) == {"duck::a", "duck::b", "duck::spare"}
            assert worker.worker.generation.clusters["duck::spare"].member.limit == 2
            with DOORS[1].connect(worker.port("postgresWire")) as client:
                assert client.ask("select 1 as elsew") == [(1,)]
                assert client.ask("select 1 as here") == [(10,)]
                routing = {"routers": [{"type": "pythonScript", "script": "def route(q, c): return 'c'"}]}
                before = status["activeRevision"]
                assert edit(served, "PUT", "routing", routing)[0] == 204
                worker.until(lambda status: status["activeRevision"] != before)
                with pytest.raises(Refusal, match="there is no such cluster group"):
                    client.ask("select 1")
            seconds = 'queryflux_script_duration_seconds_count{kind="routing"}'
            assert worker.metric(seconds) >= 3


def test_a_worker_without_scripts_has_no_process_for_them() -> None:
    plain = CENTRAL[: CENTRAL.index("scripts:")].replace(", translationScripts: [plus]", "")
    plain = plain.replace("routers: [{type: pythonScript, scriptFile: FILE}]\n", "")
    with serving(plain) as served, working(worker_file(f"http://{HOST}:{served.port('adminApi')}")) as worker:
        worker.until(lambda status: status["ready"])
        assert worker.worker.generation.scripts is None
        assert served.standalone.generation.scripts is None
