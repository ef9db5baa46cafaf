"""A process whose stored configuration cannot be used any more starts all the same: it says why it takes no
queries, and is how that is mended."""

import contextlib
import json
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cores import TRINO_ALONE, Cores, cores, directories
from tests.kit.doors import DOORS, HOST, Refusal
from tests.kit.places import free_port
from tests.kit.serving import Serving, serving
from tests.kit.working import worker_file, working
from tests.system.test_following_a_store import yaml_of
from tests.system.test_worker_config import CENTRAL, NOT_YET

pytest.importorskip("duckdb", reason="DuckDB is not installed")

AUTHORIZATION = {"Authorization": "Basic YWRtaW46YWRtaW4=", "Content-Type": "application/json"}


def ask(port: int, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    """What the operator port says."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{HOST}:{port}{path}", data, AUTHORIZATION, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def routing(needs: Path) -> dict[str, Any]:
    """Rules that can be used as long as a file is there."""
    script = f"open({str(needs)!r}).close()\ndef route(query, ctx): return None"
    return {"routers": [{"type": "pythonScript", "script": script}], "routingFallback": "main"}


def stored(tmp_path: Path, needed: Path, every: int = 0) -> str:
    """The file of a process in whose store there is what needs another file, which is gone."""
    place = f"{{type: sqlite, path: '{tmp_path / 'qf.db'}'}}"
    text = yaml_of(place).replace("configReloadIntervalSecs: 0", f"configReloadIntervalSecs: {every}")
    needed.touch()
    with serving(text) as served:
        status, said = ask(served.port("adminApi"), "/admin/config/routing", "PUT", routing(needed))
        assert status == 204, said
    needed.unlink()
    return text


def check_not_yet(served: Serving, why: str) -> None:
    for door in DOORS:
        with pytest.raises(Refusal) as refused, door.connect(served.port(door.name)) as client:
            client.ask("SELECT 1")
        assert "no configuration is active yet" in refused.value.message
        assert refused.value.code == NOT_YET[door.name], door.name
    status, ready = ask(served.port("adminApi"), "/readyz")
    assert (status, ready["code"]) == (503, "NOT_CONFIGURED")
    assert why in ready["reason"]
    status, said = ask(served.port("adminApi"), "/admin/status")
    assert (status, said["phase"], said["config"]["revision"]) == (200, "starting", None)
    assert why in said["config"]["failure"]
    assert any(why in warning for warning in said["warnings"])
    status, said = ask(served.port("adminApi"), "/admin/config/status")
    assert (status, said["current"], said["revision"], said["stage"]) == (200, False, None, "reload")
    assert why in said["failure"]


def check_served(served: Serving) -> None:
    assert ask(served.port("adminApi"), "/readyz")[0] == 200
    for door in DOORS:
        with door.connect(served.port(door.name)) as client:
            assert [tuple(row) for row in client.ask("SELECT 7")] == [(7,)]


def test_it_starts_and_an_edit_makes_it_serve(tmp_path: Path) -> None:
    with serving(stored(tmp_path, tmp_path / "needed")) as served:
        check_not_yet(served, "routers[0].script: line 1: FileNotFoundError")
        port = served.port("adminApi")
        assert ask(port, "/admin/config/routing")[1]["routers"]
        status, refused = ask(port, "/admin/config/clusters/other", "PUT", {"engineKey": "duckDb"})
        assert status == 409, refused  # it mends nothing, and nothing is stored
        status, said = ask(port, "/admin/config/routing", "PUT", {"routers": [], "routingFallback": "main"})
        assert status == 204, said
        check_served(served)


def test_it_serves_once_the_file_is_back(tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    with serving(stored(tmp_path, needed, every=1)) as served:
        check_not_yet(served, "FileNotFoundError")
        needed.touch()
        served.wait_for(lambda: served.standalone.pipeline.active is not None)
        check_served(served)


def test_a_stored_row_that_is_not_sound_is_named_and_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "qf.db"
    text = yaml_of(f"{{type: sqlite, path: '{path}'}}")
    with serving(text):
        pass
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE config_rows SET body = json_set(body, '$.config.threads', 'many')")
    with serving(text) as served:
        check_not_yet(served, "clusters.duck.threads")
        mended = {"engineKey": "duckDb", "config": {"threads": 1}}
        status, said = ask(served.port("adminApi"), "/admin/config/clusters/duck", "PUT", mended)
        assert status == 200, said
        check_served(served)


def test_workers_go_on_beside_a_control_plane_that_cannot_use_what_is_stored(tmp_path: Path) -> None:
    needed, port = tmp_path / "needed", free_port()
    place = f"  persistence: {{type: sqlite, path: '{tmp_path / 'qf.db'}'}}\n  logging:"
    text = CENTRAL.replace("PORT", str(port)).replace("  logging:", place, 1)
    door = next(door for door in DOORS if door.name == "postgresWire")
    needed.touch()
    with contextlib.ExitStack() as stack:
        with serving(text):
            assert ask(port, "/admin/config/routing", "PUT", routing(needed))[0] == 204
            worker = stack.enter_context(working(worker_file(f"http://{HOST}:{port}")))
            worker.until(lambda status: status["ready"])
            before = worker.status["activeRevision"]
        needed.unlink()
        with serving(text):
            assert ask(port, "/readyz")[0] == 503
            worker.until(lambda status: "no snapshot has been made yet" in status["sync"]["error"])
            with door.connect(worker.port(door.name)) as client:
                assert [tuple(row) for row in client.ask("SELECT 7")] == [(7,)]
            assert (worker.status["ready"], worker.status["activeRevision"]) == (True, before)
            empty = {"routers": [], "routingFallback": "main"}
            assert ask(port, "/admin/config/routing", "PUT", empty)[0] == 204
            worker.until(lambda status: status["activeRevision"] != before)


def test_several_workers_start_too_and_serve_once_it_is_mended(tmp_path: Path) -> None:
    needed, place = tmp_path / "needed", f"  persistence: {{type: sqlite, path: '{tmp_path / 'qf.db'}'}}\n"
    duck = "clusters: {duck: {engine: duckDb}}\nclusterGroups: {main: {members: [duck]}}\n"
    text = f"{TRINO_ALONE}{place}{duck}routingFallback: main\n"
    needed.touch()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with cores(tmp_path / "one", text) as served:
        assert ask(served.port("operator port"), "/admin/config/routing", "PUT", routing(needed))[0] == 204
        end(served, tmp_path / "one")
    needed.unlink()
    with cores(tmp_path / "two", text) as served:
        port = served.port("operator port")
        assert [worker.ready() for worker in served.workers()] == [False, False]
        assert "FileNotFoundError" in ask(port, "/readyz")[1]["reason"]
        empty = {"routers": [], "routingFallback": "main"}
        assert ask(port, "/admin/config/routing", "PUT", empty)[0] == 204
        served.until(lambda: all(worker.ready() for worker in served.workers()), 20)
        assert ask(port, "/readyz")[0] == 200
        end(served, tmp_path / "two")


def end(served: Cores, folder: Path) -> None:
    served.signal()
    assert served.wait() == 0
    assert directories(folder) == []
