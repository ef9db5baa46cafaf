"""pgbench through the PostgreSQL door to a real PostgreSQL: every mode, 16 clients, not one error."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.kit.postgres import PASSWORD, PostgresServer, shared_server
from tests.kit.serving import Serving, serving

CLIENTS = 16
TRANSACTIONS = 200


@pytest.fixture(scope="module")
def database() -> PostgresServer:
    if shutil.which("pgbench") is None:
        pytest.skip("no pgbench (apt-get install postgresql-contrib)")
    server = shared_server()
    with server.admin("postgres") as admin:
        if admin.execute(b"SELECT 1 FROM pg_database WHERE datname = 'bench'").fetchone() is None:
            admin.execute(b"CREATE DATABASE bench")
    command = ["pgbench", "-i", "-q", "-s", "2", "-h", server.host, "-p", str(server.port)]
    subprocess.run([*command, "-U", "trusted", "bench"], capture_output=True, check=True)
    return server


@pytest.fixture(scope="module")
def server(database: PostgresServer) -> Iterator[Serving]:
    yaml = f"""
clusters:
  pg:
    engine: postgres
    endpoint: "{database.host}:{database.port}"
    database: bench
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
    poolSize: 20
clusterGroups:
  main: {{members: [pg]}}
routingFallback: main
"""
    with serving(yaml) as running:
        yield running


@pytest.mark.parametrize("script", ["select-only", "tpcb-like"])
@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_runs_without_an_error(
    server: Serving, database: PostgresServer, mode: str, script: str
) -> None:
    before = balance(database)
    command = ["pgbench", "-n", "-M", mode, "-b", script, "-c", str(CLIENTS), "-t", str(TRANSACTIONS)]
    command += ["-h", "127.0.0.1", "-p", str(server.port("postgresWire")), "-U", "ann", "bench"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr.lower(), done.stderr
    processed = re.search(r"actually processed: (\d+)/(\d+)", done.stdout)
    assert processed is not None
    assert processed[1] == processed[2] == str(CLIENTS * TRANSACTIONS)
    assert re.search(r"failed transactions: 0 ", done.stdout)
    server.assert_idle()
    if script == "tpcb-like":
        accounts, tellers, branches, history = balance(database)
        assert accounts == tellers == branches == history, "every transaction was kept whole"
    else:
        assert balance(database) == before


def balance(database: PostgresServer) -> tuple[int, int, int, int]:
    """The four sums that a TPC-B transaction changes by the same amount."""
    sums = (
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),"
        " (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"
    )
    with database.admin("bench") as admin:
        row = admin.execute(sums.encode()).fetchone()
    assert row is not None
    return (int(row[0]), int(row[1]), int(row[2]), int(row[3]))
