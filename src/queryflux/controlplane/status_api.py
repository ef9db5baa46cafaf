"""``GET /admin/status``: what this process is, what it uses and what it holds, and what is wrong with it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from queryflux.admission.leases import Leases
from queryflux.config.store import ConfigStore
from queryflux.controlplane.endpoints import Call, Endpoint, answer
from queryflux.controlplane.following_api import moment
from queryflux.controlplane.live import Live
from queryflux.controlplane.publisher import Publishing
from queryflux.controlplane.reload import Following
from queryflux.model.errors import QueryFluxError, ShuttingDown, StoreUnavailable
from queryflux.runtime.clock import Clock

MOST_NAMED = 5
"""So many clusters that are down are told with the reason; of the others, how many."""
STORE_SECS = 2.0
"""How long the store may take to say that it is there."""


@dataclass(frozen=True, slots=True)
class About:
    """What a process is. ``store`` is the type of its persistence."""

    role: str
    version: str
    instance_id: str
    store: str
    serves_workers: bool


class Status:
    """Says how one process is."""

    def __init__(
        self,
        about: About,
        *,
        store: ConfigStore,
        following: Callable[[], Following],
        revision: Callable[[], str | None],
        check_ready: Callable[[], None],
        live: Live,
        leases: Leases | None,
        publishing: Callable[[], Publishing | None],
        clock: Clock,
    ) -> None:
        """``revision`` gives that of the configuration in use, if there is one. ``leases`` None: its
        limits are its own; ``publishing`` gives None where no workers are served."""
        self._about = about
        self._store = store
        self._following = following
        self._revision = revision
        self._check_ready = check_ready
        self._live = live
        self._leases = leases
        self._publishing = publishing
        self._clock = clock
        self._started = clock.monotonic()

    def endpoint(self) -> Endpoint:
        """Where it says so."""
        return Endpoint(
            "GET",
            "/admin/status",
            "What this process is, uses and holds, whether it reaches its store, and warnings.",
            self._answer,
        )

    async def _answer(self, call: Call) -> Response:
        return answer(await self.shown())

    async def shown(self) -> dict[str, Any]:
        """As JSON."""
        about, following = self._about, self._following()
        unreachable = await self._store_unreachable()
        states = Counter(query.state for query in self._live.running())
        return {
            "role": about.role,
            "version": about.version,
            "instance_id": about.instance_id,
            "phase": self._phase(),
            "uptime_secs": round(self._clock.monotonic() - self._started, 3),
            "serves_workers": about.serves_workers,
            "config": {
                "revision": self._revision(),
                "sequence": following.sequence,
                "epoch": following.epoch,
                "since": moment(following.since),
                "failure": following.failure or None,
            },
            "snapshot": snapshot_status(self._publishing()),
            "store": {"type": about.store, "reachable": not unreachable, "reason": unreachable or None},
            "queries": {"running": states["executing"], "queued": states["queued"]},
            "capacity": capacity_status(self._leases) if self._leases is not None else None,
            "warnings": self._wrong(unreachable),
        }

    def _phase(self) -> str:
        try:
            self._check_ready()
        except ShuttingDown:
            return "draining"
        except QueryFluxError:
            return "starting"
        return "serving"

    async def _store_unreachable(self) -> str:
        """Why the store cannot be asked; empty: it can."""
        try:
            async with asyncio.timeout(STORE_SECS):
                await self._store.revision()
        except StoreUnavailable as error:
            return error.message
        except TimeoutError:
            return f"it did not answer within {STORE_SECS:g} s"
        return ""

    def _wrong(self, unreachable: str) -> list[str]:
        found = [f"the store cannot be reached: {unreachable}"] if unreachable else []
        if failure := self._following().failure:
            found.append(f"the stored configuration is not in use: {failure}")
        found += self._following().warnings
        publishing = self._publishing()
        if publishing is not None and publishing.failure:
            found.append(f"workers are served the snapshot before: {publishing.failure}")
        standing = self._leases.standing if self._leases is not None else None
        if standing is not None and standing.unavailable:
            found.append(f"no leases are granted: {standing.unavailable}")
        return found + clusters_down(self._live)


def clusters_down(live: Live) -> list[str]:
    """Which clusters this process cannot reach, and why."""
    down = {
        it.cluster_name: it.unhealthy_reason or "no reason is known"
        for it in live.clusters()
        if not it.is_healthy
    }
    told = [
        f"cluster {name} is down: {down[name].removeprefix(f'cluster {name}: ')}"  # as some engines begin
        for name in sorted(down)[:MOST_NAMED]
    ]
    more = len(down) - len(told)
    are = "cluster is" if more == 1 else "clusters are"
    return [*told, f"{more} more {are} down: GET /admin/clusters has all"] if more else told


def snapshot_status(publishing: Publishing | None) -> dict[str, Any] | None:
    """What workers are served; null where none are. ``revision`` is null before there is a snapshot."""
    if publishing is None:
        return None
    there = publishing.published
    return {
        "revision": there.revision if there is not None else None,
        "epoch": there.epoch if there is not None else None,
        "sequence": there.sequence if there is not None else None,
        "bytes": len(there.body) if there is not None else None,
        "compressed_bytes": len(there.zipped) if there is not None else None,
        "confirmed_age_secs": round(publishing.age, 3) if publishing.age is not None else None,
        "workers_waiting": publishing.waiting,
        "failure": publishing.failure or None,
        "failing_since": moment(publishing.failing_since),
    }


def capacity_status(leases: Leases) -> dict[str, Any]:
    """``reachable`` is null before anything was asked."""
    standing = leases.standing
    return {
        "reachable": not standing.unavailable if standing.asked is not None else None,
        "reason": standing.unavailable or None,
        "since": moment(standing.since),
        "last_asked": moment(standing.asked),
        "leases_held": leases.held,
        "leases_lost": leases.lost,
        "releases_queued": leases.store.queued,
    }
