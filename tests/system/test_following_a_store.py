"""A whole QueryFlux follows its stored configuration: edits are used without a restart, and lose no query."""

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.config.groups import GroupAuthorization
from queryflux.config.snapshot import Snapshot
from queryflux.model.errors import ConfigError
from queryflux.model.secret import Secret
from tests.kit.asking import load_on
from tests.kit.doors import DOORS, Door, Refusal
from tests.kit.editing import Change, edit_in, failure_of, sequence_of
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
    mysqlWire: {host: 127.0.0.1, port: 0}
    flightSql: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: error}
  configReloadIntervalSecs: 0
  persistence: PERSISTENCE
clusters:
  duck: {engine: duckDb, threads: 1, maxRunningQueries: CAP}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
auth: {allowPlaintextCredentials: true}
"""


def yaml_of(persistence: str, cap: int = 4) -> str:
    return YAML.replace("PERSISTENCE", persistence).replace("CAP", str(cap))


@pytest.fixture(params=["inMemory", "sqlite"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    place = f", path: '{tmp_path / 'qf.db'}'" if request.param == "sqlite" else ""
    with serving(yaml_of(f"{{type: {request.param}{place}}}")) as running:
        yield running


def with_cap(cap: int | None, threads: int = 1) -> Change:
    def change(before: Snapshot) -> Snapshot:
        duck = replace(before.clusters["duck"], max_running_queries=cap, threads=threads)
        return replace(before, clusters={**before.clusters, "duck": duck})

    return change


def follow(served: Serving, change: Change, *sections: str) -> None:
    """An edit, until it is in use."""
    stored = edit_in(served, change, *sections)
    served.wait_for(lambda: sequence_of(served) == stored.sequence)


def test_edits_under_load_lose_no_query(served: Serving) -> None:
    with load_on(served) as load:
        load.reach(50)
        for number in range(12):  # caps alone, and engines that are replaced
            follow(served, with_cap(1 + number % 3, threads=1 + number // 2 % 2), "clusters")
            load.reach(20)
    served.assert_idle()
    assert {record.status.value for record in served.records} == {"Success"}
    member = served.standalone.generation.clusters["duck"].member
    assert member.limit == 3


def test_an_edited_cap_holds_at_once(served: Serving) -> None:
    assert served.standalone.generation.clusters["duck"].member.limit == 4
    follow(served, with_cap(0), "clusters")
    with pytest.raises(Refusal, match="maxRunningQueries is 0"):
        DOORS[1].ask(served.port(DOORS[1].name), "SELECT 1")
    follow(served, with_cap(None), "clusters")
    assert DOORS[1].ask(served.port(DOORS[1].name), "SELECT 1") == [(1,)]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_doors_see_new_users_and_those_who_are_in_stay(served: Serving, door: Door) -> None:
    port = served.port(door.name)
    users = StaticUsers(users={"ann": StaticUser(password=Secret("s3cr3t"))})

    def change(before: Snapshot) -> Snapshot:
        auth = AuthConfig(
            provider="static", required=True, allow_plaintext_credentials=True, static_users=users
        )
        return replace(before, auth=auth)

    with door.connect(port) as inside:
        assert inside.ask("SELECT 1") == [(1,)]
        follow(served, change, "auth")
        with pytest.raises(Refusal):
            door.ask(port, "SELECT 1", user="ann", password="wrong")
        assert door.ask(port, "SELECT 1", user="ann", password="s3cr3t") == [(1,)]
        if door.name == "postgresWire":
            assert inside.ask("SELECT 2") == [(2,)]


def test_a_configuration_that_cannot_be_used_leaves_the_last_good(served: Serving) -> None:
    def ghost(before: Snapshot) -> Snapshot:
        return replace(before, routing_fallback="ghost")

    before = sequence_of(served)
    edit_in(served, ghost, "routers")
    served.wait_for(lambda: bool(failure_of(served)))
    assert failure_of(served) == 'routingFallback: there is no cluster group "ghost"'
    assert sequence_of(served) == before
    assert DOORS[0].ask(served.port(DOORS[0].name), "SELECT 1") == [(1,)]
    told = status_of(served)
    assert (told["sequence"], told["current"], told["stage"]) == (before, False, "reload")
    assert told["failure"] == failure_of(served)
    assert told["failingSince"] >= told["since"]
    assert b'queryflux_config_reload_failures_total{stage="reload"} 1.0' in served.standalone.exposition()[0]

    follow(served, lambda before: replace(before, routing_fallback="main"), "routers")
    assert failure_of(served) == ""
    told = status_of(served)
    assert (told["sequence"], told["current"], told["failure"]) == (sequence_of(served), True, None)
    assert told["revision"] == served.standalone.generation.revision


def status_of(served: Serving) -> dict[str, Any]:
    """What an operator is told."""
    request = urllib.request.Request(f"http://127.0.0.1:{served.port('adminApi')}/admin/config/status")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"admin:admin").decode())
    with urllib.request.urlopen(request, timeout=10) as response:
        document: dict[str, Any] = json.load(response)
    return document


def test_access_rules_are_the_new_ones(served: Serving) -> None:
    def closed(before: Snapshot) -> Snapshot:
        main = replace(before.cluster_groups["main"], authorization=GroupAuthorization(allow_users=("bob",)))
        return replace(before, cluster_groups={"main": main})

    port = served.port("postgresWire")
    with DOORS[1].connect(port, user="ann") as ann:
        assert ann.ask("SELECT 1") == [(1,)]
        follow(served, closed, "clusterGroups")
        with pytest.raises(Refusal):
            ann.ask("SELECT 2")
    assert DOORS[1].ask(port, "SELECT 3", user="bob") == [(3,)]


def test_what_is_stored_beats_the_file_after_a_restart(tmp_path: Path) -> None:
    persistence = f"{{type: sqlite, path: '{tmp_path / 'qf.db'}'}}"
    with serving(yaml_of(persistence)) as first:
        follow(first, with_cap(7), "clusters")
    more = yaml_of(persistence, cap=9).replace("clusterGroups:", "  next: {engine: duckDb}\nclusterGroups:")
    with serving(more) as second:
        clusters = second.standalone.generation.clusters
        assert clusters["duck"].member.limit == 7
        assert set(clusters) == {"duck", "next"}


def test_a_file_is_one_processs_own(tmp_path: Path) -> None:
    text = yaml_of(f"{{type: sqlite, path: '{tmp_path / 'qf.db'}'}}")
    with serving(text), pytest.raises(ConfigError, match="another process serves from"), serving(text):
        pass


def test_a_file_that_cannot_be_used_is_named_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "no such folder" / "qf.db"
    with (
        pytest.raises(ConfigError, match="no such folder"),
        serving(yaml_of(f"{{type: sqlite, path: '{path}'}}")),
    ):
        pass
