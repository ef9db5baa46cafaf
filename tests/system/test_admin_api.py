"""The admin API and its command line against a whole process: edits take effect, secrets stay inside."""

import base64
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.databases import DATABASES, new_database
from tests.kit.doors import HOST
from tests.kit.process import Process, process

pytest.importorskip("duckdb", reason="DuckDB is not installed")

ENDLESS = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE x + y = -7"
YAML = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
  adminApi: {host: 0.0.0.0, port: 0}
  shutdownDrainTimeoutSecs: 0
  logging: {level: debug}
clusters:
  duck: {engine: duckDb, threads: 1, maxRunningQueries: 1}
  lake:
    engine: trino
    endpoint: "http://127.0.0.1:9"
    auth: {type: basic, username: svc, password: s3cr3t-file}
clusterGroups:
  main: {members: [duck]}
  spare: {members: [lake]}
routingFallback: main
"""


class Reply(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Operator:
    """Asks the operator port of a process, and remembers all that came back."""

    def __init__(self, process: Process, user: str = "admin", password: str = "admin") -> None:
        self.process = process
        self.port = process.port("operator port")
        self.url = f"http://{HOST}:{self.port}"
        self.user, self.password = user, password
        self.said = ""

    def __call__(self, method: str, path: str, body: Any = None, host: str = HOST) -> Reply:
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(
            f"http://{host}:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {pair}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                reply = Reply(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                reply = Reply(error.code, error.read().decode())
        self.said += reply.text
        return reply

    def command(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run ``queryflux ...`` as this operator."""
        own = {"URL": self.url, "USER": self.user, "PASSWORD": self.password}
        done = subprocess.run(
            [sys.executable, "-m", "queryflux.cli", *words],
            env={**os.environ, **{f"QUERYFLUX_ADMIN_{name}": value for name, value in own.items()}},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.said += done.stdout + done.stderr
        return done

    def states(self) -> dict[str, str]:
        """State of each running query, by its text."""
        return {query["sql_preview"]: query["state"] for query in self("GET", "/admin/queries/running").json}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Process]:
    with process(tmp_path, YAML) as running:
        until_ready(running)
        yield running


def until_ready(running: Process) -> None:
    running.until(lambda: any("ready" in line for line in running.lines))


@pytest.fixture
def operator(running: Process) -> Operator:
    return Operator(running)


def begin(running: Process, sql: str) -> str:
    """Start a query; gives its id."""
    url = f"http://{HOST}:{running.port('trinoHttp')}/v1/statement"
    request = urllib.request.Request(url, sql.encode(), {"X-Trino-User": "ann"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return str(json.load(response)["id"])


def test_a_raised_cap_lets_the_next_query_in_and_the_command_line_ends_both(
    running: Process, operator: Operator
) -> None:
    first, second = begin(running, f"{ENDLESS} -- 1"), begin(running, f"{ENDLESS} -- 2")
    running.until(lambda: sorted(operator.states().values()) == ["executing", "queued"])
    reply = operator("PATCH", "/admin/config/clusters/duck", {"maxRunningQueries": 2})
    assert (reply.status, reply.json["maxRunningQueries"]) == (200, 2)
    running.until(lambda: sorted(operator.states().values()) == ["executing", "executing"])
    states = {state["cluster_name"]: state for state in operator("GET", "/admin/clusters").json}
    assert (states["duck"]["running_queries"], states["duck"]["max_running_queries"]) == (2, 2)
    listed = operator.command("queries", "--running")
    assert first in listed.stdout
    assert second in listed.stdout
    for query in (first, second):
        done = operator.command("cancel", query)
        assert (done.returncode, done.stdout) == (0, f"cancelled {query}\n")
    assert operator("GET", "/admin/queries/running").json == []
    again = operator.command("cancel", first)
    assert again.returncode == 1
    assert "runs here" in again.stderr
    ended = {row["proxy_query_id"]: row for row in operator("GET", "/admin/queries?status=Cancelled").json}
    assert ended.keys() == {first, second}
    assert operator("GET", "/admin/stats").json["queries_last_hour"] == 2


def test_a_bad_edit_is_refused_whole(running: Process, operator: Operator) -> None:
    before = operator("GET", "/admin/config").json
    document = {
        "clusters": {**before["document"]["clusters"], "new": {"engine": "duckDb", "threads": 0}},
        "clusterGroups": {"main": {"members": ["duck", "neu"]}},
        "routingFallback": "mian",
    }
    reply = operator("PUT", "/admin/config", {"document": document})
    assert (reply.status, reply.json["code"]) == (400, "CONFIG")
    assert {it["path"] for it in reply.json["problems"]} == {
        "clusters.new.threads",
        "clusterGroups.main.members[1]",
        "routingFallback",
    }
    assert operator("GET", "/admin/config").json == before


def test_new_clusters_serve_and_old_ones_go(running: Process, operator: Operator) -> None:
    text = operator.command("config", "get").stdout
    edited = text.replace("  lake:", "  more:\n    engine: duckDb\n  lake:").replace(
        "- duck\n", "- duck\n    - more\n", 1
    )
    done = operator.command("config", "apply", "-", stdin=edited)
    assert done.returncode == 0, done.stderr
    assert '+ clusters.more: {"engine": "duckDb"}' in done.stdout
    assert "note: kept in memory" in done.stdout
    assert operator("PATCH", "/admin/config/clusters/duck", {"enabled": False}).status == 200
    query = begin(running, "SELECT 1")
    running.until(lambda: operator("GET", f"/admin/queries/{query}").status == 200)
    assert operator("GET", f"/admin/queries/{query}").json["cluster_name"] == "more"
    assert operator("DELETE", "/admin/config/groups/main").json["code"] == "IN_USE"


def test_secrets_are_in_no_answer_and_no_log(running: Process, operator: Operator) -> None:
    auth = {"auth": {"password": "s3cr3t-api"}}
    assert operator("PATCH", "/admin/config/clusters/lake", {"config": auth}).status == 200
    users = {"staticUsers": {"users": {"ann": {"password": "s3cr3t-user"}}}}
    assert operator("PUT", "/admin/config/settings/auth", users).status == 200
    bad = {
        "engineKey": "trino",
        "config": {"endpoint": 1, "auth": {"type": "basic", "password": "s3cr3t-bad"}},
    }
    assert operator("PUT", "/admin/config/clusters/lake", bad).status == 400
    for path in ("/config", "/config/clusters", "/config/settings", "/clusters", "/queries", "/frontends"):
        assert operator("GET", f"/admin{path}").status == 200
    operator.command("config", "get")
    change = {"current_password": "admin", "new_password": "s3cr3t-admin"}
    assert operator("POST", "/admin/auth/change-password", change).status == 200
    assert operator("GET", "/admin/config").status == 401
    operator.password = "s3cr3t-admin"
    assert operator("GET", "/admin/auth/status").json["db_override"] is True
    running.signal()
    running.wait()
    assert "<secret>" in operator.said
    assert "s3cr3t" not in operator.said + "".join(running.lines)


def test_wrong_passwords_and_the_default_one_from_elsewhere(running: Process, operator: Operator) -> None:
    other = own_address()
    if other is not None:
        reply = operator("GET", "/admin/config", host=other)
        assert (reply.status, reply.json["code"]) == (403, "DEFAULT_PASSWORD")
        assert "answers only clients on the machine" in reply.json["detail"]
    stranger = Operator(running, password="wrong")
    assert [stranger("GET", "/admin/config").status for _ in range(5)] == [401] * 5
    # The first wait is a second; each password that comes after a wait is looked at, and doubles it.
    running.until(lambda: stranger("GET", "/admin/config").status == 429)


def test_the_environments_password_is_for_everywhere(tmp_path: Path) -> None:
    environ = {"QUERYFLUX_ADMIN_USER": "ops", "QUERYFLUX_ADMIN_PASSWORD": "p-ops"}
    with process(tmp_path, YAML, environ) as running:
        operator = Operator(running, "ops", "p-ops")
        for host in (HOST, own_address() or HOST):
            assert operator("GET", "/admin/config", host=host).status == 200
        assert Operator(running)("GET", "/admin/config").status == 401


def own_address() -> str | None:
    """An address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def test_what_is_stored_in_a_file_outlives_the_process(tmp_path: Path) -> None:
    stored = f"  persistence: {{type: sqlite, path: {tmp_path}/queryflux.db}}\n  logging:"
    yaml = YAML.replace("  logging:", stored)
    with process(tmp_path, yaml) as running:
        operator = Operator(running)
        whole = operator("GET", "/admin/config").json
        assert whole["durable"] is True
        assert operator("PATCH", "/admin/config/clusters/duck", {"maxRunningQueries": 4}).status == 200
        assert operator("PATCH", "/admin/config/groups/main", {"newName": "first"}).status == 200
        change = {"current_password": "admin", "new_password": "s3cr3t-admin"}
        assert operator("POST", "/admin/auth/change-password", change).status == 200
        running.signal()
        running.wait()
    with process(tmp_path, yaml) as running:
        assert Operator(running)("GET", "/admin/config").status == 401
        operator = Operator(running, password="s3cr3t-admin")
        document = operator("GET", "/admin/config").json["document"]
        assert document["clusters"]["duck"]["maxRunningQueries"] == 4
        assert document["clusters"]["lake"]["auth"]["password"] == "<secret>"
        assert document["routingFallback"] == "first"
        caps = {it["group_name"]: it["max_running_queries"] for it in operator("GET", "/admin/clusters").json}
        assert caps["first"] == 4
        assert caps["main"] == 4, "what the file names and the store does not have is added again"
        assert "s3cr3t" not in operator.said + "".join(running.lines)


@pytest.mark.parametrize("kind", DATABASES)
def test_an_edit_through_one_process_is_used_by_the_other(kind: str, tmp_path: Path) -> None:
    with new_database(kind, last=0) as database:
        stored = f"  persistence: {{type: postgres, url: '{database.dsn}'}}\n  logging:"
        yaml = YAML.replace("  logging:", stored)
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        with process(folders[0], yaml) as first, process(folders[1], yaml) as second:
            for running in (first, second):
                until_ready(running)
            one, other = Operator(first), Operator(second)
            edit = {"maxRunningQueries": 2, "config": {"memoryLimit": "1GB"}}
            reply = one("PATCH", "/admin/config/clusters/duck", edit)
            assert (reply.status, reply.json["maxRunningQueries"]) == (200, 2)
            second.until(lambda: cap_of(other, "duck") == 2, 25)  # less than between two polls
            assert other("GET", "/admin/config").json == one("GET", "/admin/config").json
            refused = other(
                "PUT", "/admin/config", {"document": {"routingFallback": "x"}, "expectedSequence": 0}
            )
            assert refused.json["code"] == "CONFIG_CHANGED"
            change = {"current_password": "admin", "new_password": "s3cr3t-admin"}
            assert other("POST", "/admin/auth/change-password", change).status == 200
            first.until(lambda: one("GET", "/admin/auth/status").status == 401, 25)
            said = one.said + other.said + "".join([*first.lines, *second.lines])
            assert "s3cr3t" not in said


def cap_of(operator: Operator, cluster: str) -> int | None:
    """The limit in force, in the process that is asked."""
    states = operator("GET", "/admin/clusters").json
    caps = {state["cluster_name"]: state["max_running_queries"] for state in states}
    cap: int | None = caps[cluster]
    return cap
