"""What ``serve --workers N`` refuses, and what it makes of its file for each worker."""

import pytest
from msgspec.structs import replace

from queryflux.app.parent import Parent, check_several, child_of, names_of, with_workers
from queryflux.app.seat import Place, process_document, process_of
from queryflux.config.clusters import ClusterConfig
from queryflux.config.fleet import WorkerApiConfig
from queryflux.config.listeners import (
    AdminApiConfig,
    FrontendsConfig,
    ListenerConfig,
    ListenerTls,
    OpsListenerConfig,
)
from queryflux.config.persistence import PostgresPersistence
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.controlplane.publisher import Asker
from queryflux.controlplane.worker_app import WorkerApp
from queryflux.fleet.paths import INSTANCE_HEADER, REGISTER, RELEASE_ALL
from queryflux.fleet.registry import Heartbeat, RowState, encode_heartbeat
from queryflux.model.errors import ConfigError, NotConfigured, ShuttingDown
from queryflux.model.secret import Secret
from tests.kit.operators import ask

SECRET = Secret("made at this start")
TLS = ListenerTls(cert_file="/etc/tls/cert.pem", key_file="/etc/tls/key.pem")
PROCESS = ProcessConfig(
    role="controlPlane",
    worker_name="east",
    instance_id="the-parent",
    external_address="https://sql.example",
    frontends=FrontendsConfig(
        trino_http=ListenerConfig(port=0, tls=TLS),
        postgres_wire=ListenerConfig(port=5432, max_connections=100),
        mysql_wire=ListenerConfig(enabled=False),
        flight_sql=ListenerConfig(port=50051),
    ),
    admin_api=AdminApiConfig(password=Secret("operators' own")),
    ops_listener=OpsListenerConfig(port=9100),
    persistence=PostgresPersistence(url=Secret("postgresql://qf:central@db/qf")),
    worker_api=WorkerApiConfig(secret=Secret("of other hosts")),
)
SHARED = {"trinoHttp": 40001, "postgresWire": 5432}


def test_a_worker_has_what_is_local_and_none_of_the_central_keys() -> None:
    child = child_of(PROCESS, "east-2", 1, 9000, SECRET, SHARED)
    assert (child.role, child.worker_name, child.external_address) == (
        "worker",
        "east-2",
        "https://sql.example",
    )
    assert child.instance_id is not None
    assert child.instance_id.startswith("east-2-")
    doors = child.frontends
    assert (doors.trino_http.port, doors.trino_http.tls) == (40001, TLS)
    assert doors.postgres_wire == PROCESS.frontends.postgres_wire
    assert doors.flight_sql is not None
    assert doors.flight_sql.port == 50052
    assert child.ops_listener == OpsListenerConfig(port=9101)
    document = str(process_document(child))
    for central in ("operators' own", "central", "of other hosts", "the-parent"):
        assert central not in document
    assert document.count(SECRET.reveal()) == 1


def test_what_is_given_comes_back_as_it_was() -> None:
    child = child_of(PROCESS, "east-1", 0, 9000, SECRET, SHARED)
    place = Place(
        number=0,
        of=2,
        tag="abcde",
        directory="/d",
        secret=b"",
        process=process_document(child),
        sockets={},
        sign_secs=2,
    )
    assert process_of(place) == child


@pytest.mark.parametrize(
    ("admin", "url", "insecure"),
    [
        (AdminApiConfig(), "http://127.0.0.1:9000", None),
        (AdminApiConfig(host="::"), "http://[::1]:9000", None),
        (AdminApiConfig(host="10.1.2.3"), "http://10.1.2.3:9000", None),
        (AdminApiConfig(tls=TLS), "https://127.0.0.1:9000", True),
    ],
)
def test_workers_reach_the_operator_port_wherever_it_listens(
    admin: AdminApiConfig, url: str, insecure: bool | None
) -> None:
    child = child_of(replace(PROCESS, admin_api=admin), "east-1", 0, 9000, SECRET, SHARED)
    assert child.control_plane is not None
    assert child.control_plane.url == url
    tls = child.control_plane.tls
    assert (tls.insecure_skip_verify if tls is not None else None) is insecure


def test_free_ports_stay_free_ones() -> None:
    free = replace(PROCESS, frontends=FrontendsConfig(flight_sql=ListenerConfig(port=0)), ops_listener=None)
    child = child_of(free, "east-3", 2, 9000, SECRET, {"trinoHttp": 1})
    assert child.frontends.flight_sql == ListenerConfig(port=0)
    assert child.ops_listener == OpsListenerConfig(host="127.0.0.1", port=0)


def test_the_parent_serves_workers_and_opens_no_door() -> None:
    parent = with_workers(RootConfig(queryflux=PROCESS), SECRET).queryflux
    assert parent.serves_workers
    assert not any(door.enabled for door in parent.frontends.named().values())
    assert (parent.worker_api.secret, parent.worker_api.secrets) == (Secret("of other hosts"), (SECRET,))
    alone = with_workers(RootConfig(), SECRET).queryflux
    assert alone.serves_workers


async def test_who_keeps_limits_to_itself_counts_with_its_own_workers() -> None:
    """Else nobody would end the leases of one that was killed."""
    lone = ProcessConfig(distributed=False)
    parent = Parent(RootConfig(queryflux=lone), Snapshot(), 2)
    assert parent.capacity is not None
    assert parent.shared is None


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_workers_elsewhere_hear_at_once_that_it_ends(
    elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended() -> None:
        """All workers have."""

    api = WorkerApiConfig(enabled=elsewhere, secret=Secret("of other hosts"))
    parent = Parent(RootConfig(queryflux=ProcessConfig(worker_api=api)), Snapshot(), 2)
    monkeypatch.setattr(parent.supervisor, "ended", ended)
    await parent.drain()
    assert parent.workers is not None
    with pytest.raises(ShuttingDown if elsewhere else NotConfigured):  # it has no document either
        await parent.workers.publisher.wait(Asker(""), 1)


async def test_a_worker_that_has_died_is_offline_and_holds_nothing() -> None:
    parent = Parent(RootConfig(), Snapshot(), 2)
    await parent.stores.registry.register(Heartbeat(instance_id="w-1", worker_name="w"))
    assert await parent.lease_store("w-1").try_acquire("c", "q", 1)
    await parent._gone("w-1")
    (row,) = await parent.stores.registry.rows()
    assert row.state is RowState.OFFLINE
    assert await parent.lease_store("w-2").try_acquire("c", "q2", 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [(REGISTER, encode_heartbeat(Heartbeat(instance_id="me", worker_name="w"))), (RELEASE_ALL, b"")],
)
async def test_no_worker_is_the_process_itself(path: str, body: bytes) -> None:
    parent = Parent(RootConfig(queryflux=ProcessConfig(instance_id="me")), Snapshot(), 2)
    assert parent.workers is not None
    app = WorkerApp(parent.workers.endpoints, lambda peer, secret, worker: None)
    reply = await ask(app, "POST", path, {INSTANCE_HEADER: "me"}, body, "")
    assert (reply.status, reply.json["code"]) == (409, "INSTANCE_ID_TAKEN")


def test_names_are_the_same_after_a_restart() -> None:
    assert names_of(PROCESS, 2) == ["east-1", "east-2"]
    assert names_of(ProcessConfig(), 1) == names_of(ProcessConfig(), 1)


def test_what_several_processes_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="--workers is 1 to"):
        check_several(RootConfig(), 0)
    with pytest.raises(ConfigError, match="this file is a worker's"):
        check_several(RootConfig(queryflux=ProcessConfig(role="worker")), 2)
    file = ClusterConfig(engine="duckDb", database_path="/data/sales.duckdb")
    with pytest.raises(ConfigError, match=r"clusters.sales: a DuckDB file .* one process only"):
        check_several(RootConfig(clusters={"sales": file}), 2)
    check_several(RootConfig(clusters={"sales": file}), 1)
    check_several(RootConfig(clusters={"sales": replace(file, read_only=True)}), 2)
    check_several(RootConfig(clusters={"m": replace(file, database_path=":memory:")}), 2)
