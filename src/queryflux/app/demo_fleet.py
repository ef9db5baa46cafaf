"""The demo's fleet: a control plane with two workers, and what its operator port says of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from queryflux.app.demo_clients import Client
from queryflux.app.fleet_status import status
from queryflux.app.folder import CLUSTER, any_free, folder_config, free_ports, in_url, said_as_options
from queryflux.app.parent import LOOPBACK, Parent
from queryflux.app.remote import Remote, RemoteError
from queryflux.config.fleet import HistoryUplinkConfig
from queryflux.config.listeners import AdminApiConfig
from queryflux.config.persistence import InMemoryPersistence, Persistence
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import snapshot_of
from queryflux.model.errors import ConfigError
from queryflux.model.protocol import ClientProtocol

WORKERS = 2
NAME = "demo"
LIMIT = 16
"""Queries at a time, of the whole fleet."""
PATIENCE_SECONDS = 30.0
"""How long what workers report and record may take to be seen at the control plane."""
STARTS = 3
_LOOK_SECONDS = 0.1
_MOST_RECORDS = 500


def fleet_config(data: Path, host: str, ports: dict[str, int], persistence: Persistence) -> RootConfig:
    """A control plane, which workers send their history every second; without a database a standalone that
    serves workers."""
    base = folder_config(data, host, ports, log_level="warning")
    process = replace(
        base.queryflux,
        role="standalone" if isinstance(persistence, InMemoryPersistence) else "controlPlane",
        worker_name=NAME,
        persistence=persistence,
        history_uplink=HistoryUplinkConfig(flush_interval_secs=1),
    )
    group = replace(base.cluster_groups[CLUSTER], max_running_queries=LIMIT)
    return replace(base, queryflux=process, cluster_groups={CLUSTER: group})


async def start_fleet(
    data: Path, host: str, wanted: Mapping[str, int | None], persistence: Persistence
) -> Parent:
    """Start it on free ports, and say which were taken; other ones when somebody takes one in between.
    Raises ConfigError."""
    if wanted.get("flightSql") == 0:
        wanted = {**wanted, "flightSql": any_free(host, WORKERS)}  # both have to be known
    ports, notes = free_ports(host, wanted, WORKERS)
    for left in reversed(range(STARTS)):
        config = fleet_config(data, host, ports, persistence)
        parent = Parent(config, snapshot_of(config), WORKERS)
        try:
            with said_as_options():
                await parent.start()
        except ConfigError:
            before = ports
            ports, notes = free_ports(host, wanted, WORKERS)
            if ports == before or not left:
                raise
            continue
        break
    for note in notes:
        print(note)
    return parent


class Watcher:
    """An operator, who looks at the fleet from outside."""

    def __init__(self, host: str, port: int, workers: Sequence[str]) -> None:
        """``port`` is the control plane's operator port, ``workers`` are the names of its workers."""
        at = in_url(LOOPBACK.get(host, host))
        usual = AdminApiConfig()
        self._remote = Remote(f"http://{at}:{port}", usual.username, usual.password)
        self._workers = workers
        self._shown: set[str] = set()

    @property
    def url(self) -> str:
        """Of the operator port."""
        return self._remote.url

    async def status(self) -> str:
        """What ``queryflux status`` says once all workers run what is published. Raises RemoteError when that
        does not come."""
        async with _patience("not all workers run what is published"):
            while True:
                if await self._all_current():
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        return await asyncio.to_thread(status, self._remote, as_json=False)

    async def _all_current(self) -> bool:
        answer = await asyncio.to_thread(self._remote.call, "GET", "/admin/workers")
        workers = answer.document["workers"]
        good = [it for it in workers if it["online"] and it["current"] and it["phase"] == "serving"]
        return {it["workerName"] for it in good} == set(self._workers)

    async def records(self, worker: str) -> list[dict[str, Any]]:
        """The latest queries that the control plane's history has of a worker. Raises RemoteError."""
        params = {"worker": worker, "limit": str(_MOST_RECORDS)}
        answer = await asyncio.to_thread(self._remote.call, "GET", "/admin/queries", params=params)
        rows: list[dict[str, Any]] = answer.document
        return rows

    async def new_records(
        self, clients: Sequence[Client], sql: str, each: int
    ) -> dict[str, list[dict[str, Any]]]:
        """What history says of a question once it has so many new records for each client, by the client's
        door, the oldest first. Raises RemoteError when they do not come."""
        doors = {ClientProtocol(client.door).label: client.door for client in clients}
        async with _patience("not every query came into the control plane's history"):
            while True:
                found: dict[str, list[dict[str, Any]]] = {door: [] for door in doors.values()}
                for worker in self._workers:
                    for row in await self.records(worker):
                        door = doors.get(row["frontend_protocol"])
                        if door is not None and self._is_new(row, sql):
                            found[door].append(row)
                if all(len(rows) >= each for rows in found.values()):
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        for rows in found.values():
            rows.sort(key=lambda row: float(row["created_at"]))
            self._shown |= {row["proxy_query_id"] for row in rows}
        return found

    def _is_new(self, row: Mapping[str, Any], sql: str) -> bool:
        preview = row["sql_preview"]
        return preview and sql.startswith(preview) and row["proxy_query_id"] not in self._shown


@asynccontextmanager
async def _patience(otherwise: str) -> AsyncIterator[None]:
    """A block that may take PATIENCE_SECONDS. Raises RemoteError with ``otherwise``."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    except TimeoutError:
        raise RemoteError(f"{otherwise} within {PATIENCE_SECONDS:g} s") from None
