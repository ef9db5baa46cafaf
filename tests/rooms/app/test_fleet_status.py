"""``queryflux status``: what is printed of a control plane and its workers."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.cli import main
from queryflux.controlplane.reload import Following
from queryflux.fleet.registry import Coordination, Heartbeat, Phase, Sync, Uplink
from queryflux.model.errors import StoreUnavailable
from tests.kit.operators import PUBLISHED, ScriptedProcess
from tests.rooms.app.test_admin_commands import Served

Output = pytest.CaptureFixture[str]

EDGE = Heartbeat(
    instance_id="edge-1-a",
    worker_name="edge-1",
    version="1.2.3",
    active_revision=PUBLISHED.revision,
    epoch=PUBLISHED.epoch,
    sequence=PUBLISHED.sequence,
    config_source="controlPlane",
    coordination=Coordination(slots_held=3, leases_held=2),
    history_uplink=Uplink(delivered=120),
)
REFUSING = replace(
    EDGE,
    instance_id="edge-2-a",
    worker_name="edge-2",
    active_revision="0000000000000001",
    sequence=6,
    rejected_revision=PUBLISHED.revision,
    rejected_error="clusters.lake: " + "no driver " * 9,
    history_uplink=Uplink(delivered=7, dropped=4, error="the control plane answered 503"),
    warnings=("the control plane is plain http",),
)
COPIED = replace(
    EDGE,
    instance_id="edge-3-a",
    worker_name="edge-3",
    config_source="peer",
    stale=True,
    confirmed_age_secs=7200.0,
    sync=Sync(error="connection refused", failures=9),
    phase=Phase.DRAINING.value,
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served()
    monkeypatch.setenv("QUERYFLUX_ADMIN_URL", served.url)
    yield served
    served.close()


def register(served: Served, *reports: Heartbeat) -> None:
    for report in reports:
        asyncio.run(served.port.workers.register(report))


def printed(capsys: Output) -> list[str]:
    assert main(["status"]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_control_plane_and_each_worker(served: Served, capsys: Output) -> None:
    register(served, EDGE, REFUSING, COPIED)
    lines = printed(capsys)
    assert lines[:6] == [
        f"{served.url}: controlPlane qf-a-1, version 1.2.3, serving",
        "  configuration  aa00aa00aa00aa00 at 7, since 2027-01-15T08:00:00.000Z",
        "  store          postgres",
        "  queries        1 running, 0 waiting",
        "",
        "WORKER  STATE             REVISION          SOURCE        RUNNING  LEASES  SENT  DROPPED  VERSION  "
        "CURRENT",
    ]
    assert lines[6:9] == [
        "edge-1  online            aa00aa00aa00aa00  controlPlane  3        2       120   0        1.2.3    "
        "yes",
        "edge-2  online            0000000000000001  controlPlane  3        2       7     4        1.2.3    "
        "refused: clusters.lake: no driver no driver no driver no ...",
        "edge-3  online, draining  aa00aa00aa00aa00  peer, stale   3        2       120   0        1.2.3    "
        "yes",
    ]
    assert lines[9:] == [
        "warning: edge-2: the control plane is plain http",
        f"warning: edge-2: refused: {REFUSING.rejected_error}",
        "warning: edge-2: history is not taken: the control plane answered 503",
        "warning: edge-2: 4 records of history are lost",
        "warning: edge-3: cannot reach its control plane: connection refused",
        "warning: edge-3: its configuration is not confirmed for 2 h",
    ]


def test_workers_that_are_lost_and_that_have_stopped(served: Served, capsys: Output) -> None:
    register(served, EDGE, replace(REFUSING, phase=Phase.STOPPED.value))
    asyncio.run_coroutine_threadsafe(served.port.clock.advance(95), served.loop).result(30)
    lines = printed(capsys)
    assert [line.split("  ")[:2] for line in lines[6:7]] == [["edge-1", "offline 2 min"]]
    assert lines[7:] == [
        "stopped, and not started again: edge-2",
        "warning: edge-1: not heard of for 2 min",
    ]


def test_a_process_without_workers_says_so(served: Served, capsys: Output) -> None:
    assert printed(capsys)[-1] == "no workers: none has registered"


def test_a_standalone_that_serves_none_says_so(capsys: Output) -> None:
    served = Served(process=ScriptedProcess("standalone", serves_workers=False))
    assert main(["status", "--url", served.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    served.close()
    assert lines[0] == f"{served.url}: standalone qf-a-1, version 1.2.3, serving"
    assert lines[-1] == "no workers: this process serves none (queryflux.workerApi.enabled)"


def test_warnings_of_the_fleet_and_of_the_process(served: Served, capsys: Output) -> None:
    served.port.process.following = Following("epoch-1", 7, 0.0, "it is\x1b[31m unsound", "reload", 0.0)
    local = Coordination(mode="local", state="local")
    register(served, replace(EDGE, coordination=local), COPIED)
    warnings = [line for line in printed(capsys) if line.startswith("warning: ")]
    served.port.live.down = "no route to trino"
    assert "warning: cluster east is down: no route to trino" in printed(capsys)
    assert warnings[0] == "warning: the stored configuration is not in use: it is [31m unsound"
    assert "these go by limits of their own: edge-1" in warnings[1]


def test_a_registry_that_cannot_be_read_does_not_cost_the_rest(
    served: Served, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> Any:
        raise StoreUnavailable("the database cannot be reached")

    monkeypatch.setattr(served.port.workers, "rows", away)
    assert printed(capsys)[-1] == "workers: cannot be listed: the database cannot be reached"
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["workers"], document["workersFailure"]) == (None, "the database cannot be reached")


def test_json_for_programs(served: Served, capsys: Output) -> None:
    register(served, EDGE)
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == [
        "url",
        "controlPlane",
        "publishedRevision",
        "workers",
        "workersFailure",
        "warnings",
    ]
    assert document["controlPlane"]["role"] == "controlPlane"
    assert document["publishedRevision"] == PUBLISHED.revision
    (worker,) = document["workers"]
    assert (worker["workerName"], worker["online"], worker["current"]) == ("edge-1", True, True)
    assert (worker["historyUplink"]["delivered"], worker["coordination"]["leasesHeld"]) == (120, 2)


def test_nobody_there(capsys: Output) -> None:
    assert main(["status", "--url", "http://127.0.0.1:9"]) == 1
    assert "cannot reach" in capsys.readouterr().err


def test_a_port_without_the_admin_api_as_a_worker_has_it(served: Served, capsys: Output) -> None:
    assert main(["status", "--url", f"{served.url}/elsewhere"]) == 1
    assert "has no admin API" in capsys.readouterr().err
    for command in (["status"], ["config", "get"], ["queries"], ["queries", "--running"], ["cancel", "q1"]):
        assert main([*command, "--url", f"{served.url}/elsewhere"]) == 1
        error = capsys.readouterr().err
        assert "has no admin API" in error
        assert "its control plane" in error


def test_what_another_server_says_is_no_command_for_the_terminal(capsys: Output) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(b"E\x00\x00\x1b[31mred\r\n")

        thread = threading.Thread(target=answer, name="another server")
        thread.start()
        assert main(["status", "--url", f"http://127.0.0.1:{server.getsockname()[1]}"]) == 1
        thread.join(10)
    error = capsys.readouterr().err
    assert error.startswith("queryflux: what listens at http://127.0.0.1:")
    assert "does not speak HTTP" in error
    assert "queryflux.adminApi" in error
    assert "red" not in error
