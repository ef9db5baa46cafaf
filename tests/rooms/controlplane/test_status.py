"""GET /admin/status: what a process is, and what is wrong with it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.controlplane import status_api
from queryflux.controlplane.publisher import Published, Publishing
from queryflux.controlplane.reload import Following
from queryflux.model.errors import NotConfigured, ShuttingDown, StoreUnavailable
from queryflux.persistence.memory_config import MemoryConfigStore
from tests.kit.clock import START
from tests.kit.operators import PUBLISHED, Port, make_port


async def shown(port: Port) -> dict[str, Any]:
    reply = await port.asker()("GET", "/admin/status")
    assert reply.status == 200
    document: dict[str, Any] = reply.json
    return document


async def test_a_process_says_what_it_is_and_what_it_uses(port: Port) -> None:
    await port.clock.advance(12.5)
    assert await shown(port) == {
        "role": "controlPlane",
        "version": "1.2.3",
        "instance_id": "qf-a-1",
        "phase": "serving",
        "uptime_secs": 12.5,
        "serves_workers": True,
        "config": {
            "revision": PUBLISHED.revision,
            "sequence": 7,
            "epoch": "epoch-1",
            "since": "2027-01-15T08:00:00.000Z",
            "failure": None,
        },
        "snapshot": None,
        "store": {"type": "postgres", "reachable": True, "reason": None},
        "queries": {"running": 1, "queued": 0},
        "capacity": None,
        "warnings": [],
    }


async def test_a_process_says_when_it_is_not_ready(port: Port) -> None:
    for error, phase in ((NotConfigured("not yet"), "starting"), (ShuttingDown("no more"), "draining")):
        port.process.not_ready = error
        assert (await shown(port))["phase"] == phase


async def test_what_is_wrong_is_said(port: Port) -> None:
    port.process.following = Following("epoch-1", 7, START, "clusters.x: no driver", "reload", START)
    document = await shown(port)
    assert document["config"]["failure"] == "clusters.x: no driver"
    assert document["warnings"] == ["the stored configuration is not in use: clusters.x: no driver"]


async def test_clusters_that_do_not_answer_are_said_once_with_the_reason(port: Port) -> None:
    port.live.down = "cannot connect to trino:8443"
    expected = ["cluster east is down: cannot connect to trino:8443"]
    assert (await shown(port))["warnings"] == expected
    port.live.down = "cluster east: cannot connect to trino:8443"
    assert (await shown(port))["warnings"] == expected


async def test_of_many_clusters_that_are_down_some_are_named(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    port.live.down = "away"
    (example,) = port.live.clusters()
    names = ["f", "e", "d", "c", "b", "a", "g"]
    states = [replace(example, cluster_name=name, group_name=group) for name in names for group in ("x", "y")]
    monkeypatch.setattr(port.live, "clusters", lambda: states)
    assert (await shown(port))["warnings"] == [
        *(f"cluster {name} is down: away" for name in "abcde"),
        "2 more clusters are down: GET /admin/clusters has all",
    ]


async def test_what_workers_are_served_is_said(port: Port) -> None:
    there = Published("r" * 16, "e", 7, b"x" * 10, b"x")
    port.process.publishing = Publishing(there, 1.5, 3, "it is too large", START)
    document = await shown(port)
    assert document["snapshot"] == {
        "revision": "r" * 16,
        "epoch": "e",
        "sequence": 7,
        "bytes": 10,
        "compressed_bytes": 1,
        "confirmed_age_secs": 1.5,
        "workers_waiting": 3,
        "failure": "it is too large",
        "failing_since": "2027-01-15T08:00:00.000Z",
    }
    assert document["warnings"] == ["workers are served the snapshot before: it is too large"]
    port.process.publishing = Publishing(None, None, 0, "", None)
    assert (await shown(port))["snapshot"]["revision"] is None


class AwayStore(MemoryConfigStore):
    """A store that does not answer as it should."""

    answer: Callable[[], Awaitable[None]]

    async def revision(self) -> tuple[str, int]:
        await self.answer()
        return await super().revision()


async def refuse() -> None:
    raise StoreUnavailable("the database cannot be reached")


async def hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("how", "reason"),
    [(refuse, "the database cannot be reached"), (hang, "it did not answer within 0.01 s")],
)
async def test_a_store_that_is_away_costs_nothing_else(
    how: Callable[[], Awaitable[None]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how is hang:
        monkeypatch.setattr(status_api, "STORE_SECS", 0.01)

    async def nothing() -> None:
        """It answers."""

    store = AwayStore()
    store.answer = nothing
    port = await make_port(store=store)
    await port.asker()("GET", "/admin/auth/status")  # the operator's password is known
    store.answer = how
    document = await shown(port)
    assert document["store"] == {"type": "postgres", "reachable": False, "reason": reason}
    assert document["warnings"] == [f"the store cannot be reached: {reason}"]
