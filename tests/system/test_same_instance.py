"""A process that is started twice under one instance id: the one that runs keeps its leases."""

import logging
from collections.abc import Iterator

import psycopg
import pytest

from queryflux.model.errors import ConfigError
from tests.kit.databases import DATABASES, Database, new_database
from tests.kit.doors import HOST
from tests.kit.places import free_port
from tests.kit.serving import serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  instanceId: r1
  frontends:
    trinoHttp: {enabled: false}
    postgresWire: {host: 127.0.0.1, port: DOOR}
  adminApi: {host: 127.0.0.1, port: ADMIN}
  persistence: {type: postgres, url: 'URL'}
clusters:
  duck: {engine: duckDb, threads: 1, maxRunningQueries: 2}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with new_database(DATABASES[-1]) as made:
        yield made


@pytest.mark.parametrize("taken", ["adminApi", "postgresWire"])
def test_a_second_start_that_finds_its_ports_taken_leaves_the_leases_of_the_first(
    database: Database, caplog: pytest.LogCaptureFixture, taken: str
) -> None:
    ports = {"adminApi": free_port(), "postgresWire": free_port()}

    def text() -> str:
        filled = YAML.replace("URL", database.dsn).replace("ADMIN", str(ports["adminApi"]))
        return filled.replace("DOOR", str(ports["postgresWire"]))

    with serving(text()) as first:
        port = first.port("postgresWire")
        with psycopg.connect(host=HOST, port=port, user="ann", dbname="x", sslmode="disable") as held:
            held.execute("SELECT 1")
            assert database.leases() == {"duck": 1}
            ports[{"adminApi": "postgresWire", "postgresWire": "adminApi"}[taken]] = free_port()
            with caplog.at_level(logging.INFO), pytest.raises(ConfigError, match="in use"), serving(text()):
                pass
            assert database.leases() == database.counters() == {"duck": 1}
            assert "released" not in caplog.text
            held.execute("SELECT 1")
    assert database.leases() == {}, "and the first gives back its own"
