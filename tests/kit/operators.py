"""An operator port without a network: requests as a server would hand them in, from any address, and scripts
of what stands behind it."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.types import ASGIApp

from queryflux.config.clusters import ClusterConfig
from queryflux.config.listeners import AdminApiConfig, FrontendsConfig, ListenerConfig
from queryflux.config.loader import load_bytes
from queryflux.config.process import ProcessConfig
from queryflux.controlplane.config_service import ConfigService, Rules
from queryflux.controlplane.live import ClusterState, FrontendState, Live, RunningQuery
from queryflux.controlplane.operator_port import operator_port
from queryflux.controlplane.public_api import public_endpoints
from queryflux.controlplane.publisher import Publishing
from queryflux.controlplane.registry import Current, WorkerRegistry
from queryflux.controlplane.reload import Following
from queryflux.controlplane.status_api import About, Status
from queryflux.history.port import Added, ClusterSnapshot, HistoryFilter, Purged, Summary, Usage
from queryflux.history.stored import StoredQuery
from queryflux.history.upkeep import alone
from queryflux.model.errors import QueryFluxError, StoreUnavailable
from queryflux.persistence.memory_config import MemoryConfigStore
from queryflux.persistence.memory_registry import MemoryRegistryStore
from queryflux.routing.regex import check_regex
from tests.kit.clock import START, ManualClock

LOOPBACK = "127.0.0.1"
FAR = "203.0.113.7"


class Reply(NamedTuple):
    """What came back. ``headers`` by lower-case name."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asker:
    """Asks an application, as one operator at one address."""

    def __init__(self, app: Starlette, user: str = "admin", password: str = "admin", peer: str = LOOPBACK):
        self.app = app
        self.user: str | None = user
        self.password = password
        self.peer = peer
        self.said: list[bytes] = []
        """Every body and header that ever came back."""

    async def __call__(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        sent = {"host": "localhost:9000", **(headers or {})}
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if data and "content-type" not in sent:
            sent["content-type"] = "application/json"
        if self.user is not None:
            credentials = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            sent.setdefault("authorization", f"Basic {credentials}")
        reply = await ask(self.app, method, target, sent, data, self.peer)
        self.said += [reply.body, json.dumps(reply.headers).encode()]
        return reply


async def ask(
    app: ASGIApp, method: str, target: str, headers: dict[str, str], data: bytes, peer: str
) -> Reply:
    """One request."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": (peer, 50000),
        "server": ("127.0.0.1", 9000),
    }
    waiting = [data[at : at + 65536] for at in range(0, len(data), 65536)] or [b""]
    sent: list[Any] = []

    async def receive() -> Any:
        part = waiting.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


class ScriptedLive(Live):
    """A process with one cluster in one group and one running query."""

    def __init__(self) -> None:
        self.enabled = True
        self.down = ""
        self.limit: int | None = 5
        self.queries = {"q1": "engine-1"}
        self.probed: list[ClusterConfig] = []
        self.probe_says = ""
        self.elsewhere: dict[str, str] | StoreUnavailable = {}
        """Queries of other processes, each with its process; or why they are not known."""

    def clusters(self) -> Sequence[ClusterState]:
        state = ClusterState(
            group_name="bi",
            cluster_name="east",
            engine_type="trino",
            endpoint="https://trino:8443",
            running_queries=2,
            queued_queries=1,
            max_running_queries=self.limit,
            is_healthy=not self.down,
            unhealthy_reason=self.down or None,
            enabled=self.enabled,
        )
        return [state]

    def change_cluster(
        self, group: str, cluster: str, enabled: bool | None, limit: int | None
    ) -> ClusterState | None:
        if (group, cluster) not in (("bi", "east"), ("b/i", "5%/east")):
            return None
        self.enabled = self.enabled if enabled is None else enabled
        self.limit = self.limit if limit is None else limit
        return self.clusters()[0]

    def running(self) -> Sequence[RunningQuery]:
        return [
            RunningQuery(
                id=own,
                backend_query_id=other,
                submitted_by="ann",
                group="bi",
                cluster="east",
                sql_preview="SELECT 1",
                state="executing",
                frontend_protocol="TrinoHttp",
                created_at=1.0,
                elapsed_secs=2.0,
                instance_id="qf-a-1",
            )
            for own, other in self.queries.items()
        ]

    async def running_elsewhere(self) -> Sequence[RunningQuery]:
        if isinstance(self.elsewhere, StoreUnavailable):
            raise self.elsewhere
        example = ScriptedLive().running()[0]
        return [
            replace(example, id=name, created_at=0.5, instance_id=owner)
            for name, owner in self.elsewhere.items()
        ]

    async def cancel(self, query_id: str) -> bool:
        for own, other in list(self.queries.items()):
            if query_id in (own, other):
                del self.queries[own]
                return True
        return False

    async def probe(self, name: str, config: ClusterConfig) -> str:
        self.probed.append(config)
        return self.probe_says

    def frontends(self) -> Sequence[FrontendState]:
        door = FrontendState(
            id="trinoHttp",
            label="Trino HTTP",
            short_description="Trino clients",
            enabled=True,
            port=8080,
            tls=False,
        )
        return [door]

    external_address = None
    admin_port = 9000


PUBLISHED = Current("aa00aa00aa00aa00", "epoch-1", 7)


class ScriptedProcess:
    """How a process says that it is."""

    def __init__(self, role: str = "controlPlane", *, serves_workers: bool = True) -> None:
        self.about = About(role, "1.2.3", "qf-a-1", "postgres", serves_workers)
        self.following = Following("epoch-1", 7, START)
        self.published: Current | None = PUBLISHED
        self.not_ready: QueryFluxError | None = None
        self.publishing: Publishing | None = None

    def check_ready(self) -> None:
        if self.not_ready is not None:
            raise self.not_ready


class ListedHistory:
    """A history of a few records, which notes what it was asked."""

    def __init__(self, *records: StoredQuery) -> None:
        self.records = list(records)
        self.asked: list[Any] = []

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        self.records += records
        return Added(len(records), 0)

    async def query(self, wanted: HistoryFilter, limit: int, offset: int = 0) -> list[StoredQuery]:
        self.asked.append((wanted, limit, offset))
        return self.records[offset : offset + limit]

    async def get(self, query_id: str) -> StoredQuery | None:
        return next((record for record in self.records if record.proxy_query_id == query_id), None)

    async def engines(self) -> list[str]:
        return ["DuckDb", "Trino"]

    async def summary(self, since: float) -> Summary:
        self.asked.append(since)
        return Summary(queries=4, error_rate=0.25, avg_duration_ms=12.5, translation_rate=0.5)

    async def engine_usage(self, since: float) -> list[Usage]:
        self.asked.append(since)
        return [usage("Trino")]

    async def group_usage(self, since: float) -> list[Usage]:
        self.asked.append(since)
        return [usage("bi")]

    async def add_snapshots(self, snapshots: Sequence[ClusterSnapshot]) -> None:
        raise AssertionError("operators add none")

    async def purge(self, before: float) -> Purged:
        raise AssertionError("operators delete nothing")


def usage(name: str) -> Usage:
    return Usage(
        name=name,
        total_queries=4,
        success_queries=3,
        failed_queries=1,
        cancelled_queries=0,
        avg_execution_ms=12.5,
        min_execution_ms=1.0,
        max_execution_ms=40.0,
        avg_queue_ms=0.0,
        translated_queries=2,
        total_rows=10,
    )


FILE = """
clusters:
  east:
    engine: trino
    endpoint: https://trino:8443
    auth: {type: basic, username: svc, password: s3cr3t-1}
    maxRunningQueries: 5
  files: {engine: duckDb}
clusterGroups:
  bi: {members: [east, files], authorization: {allowUsers: [ann]}}
  spare: {members: [files]}
routers:
  - {type: userGroup, userToGroup: {ann: bi}}
  - {type: protocolBased, trinoHttp: spare}
routingFallback: bi
translation: {mode: strict}
"""

RECORD = StoredQuery(
    proxy_query_id="q0",
    cluster_group="bi",
    cluster_name="east",
    engine_type="Trino",
    frontend_protocol="TrinoHttp",
    username="ann",
    sql_text="SELECT " + "x" * 600,
    status="Success",
    reason="completed",
    created_at=1_799_999_000.0,
)


@dataclass
class Port:
    """Everything behind an operator port."""

    config: AdminApiConfig
    store: MemoryConfigStore
    clock: ManualClock
    live: ScriptedLive
    history: ListedHistory
    app: Starlette
    workers: MemoryRegistryStore
    process: ScriptedProcess
    applied: int = 0

    def asker(self, **options: Any) -> Asker:
        return Asker(self.app, **options)


async def make_port(
    config: AdminApiConfig | None = None,
    store: MemoryConfigStore | None = None,
    process: ScriptedProcess | None = None,
) -> Port:
    """A port with FILE stored."""
    config = config or AdminApiConfig()
    store = store or MemoryConfigStore()
    file = load_bytes(FILE.encode(), {}).snapshot
    await store.seed(file)
    clock, live, history = ManualClock(), ScriptedLive(), ListedHistory(RECORD)

    async def apply() -> str:
        made.applied += 1
        return ""

    here = FrontendsConfig(trino_http=ListenerConfig(host="127.0.0.1"))
    rules = Rules(ProcessConfig(frontends=here), check_regex, lambda text: None)
    service = ConfigService(store, file, rules, durable=False, apply=apply)
    workers, process = MemoryRegistryStore(clock), process or ScriptedProcess()
    registry = WorkerRegistry(workers, alone, lambda: process.published, clock)
    status = Status(
        process.about,
        store=store,
        following=lambda: process.following,
        revision=lambda: PUBLISHED.revision,
        check_ready=process.check_ready,
        live=live,
        leases=None,
        publishing=lambda: process.publishing,
        clock=clock,
    )
    public = public_endpoints(lambda: None, lambda: (b"up 1\n", "text/plain"))
    app = operator_port(
        [*public, status.endpoint(), *registry.admin_endpoints()],
        config=config,
        service=service,
        store=store,
        history=history,
        live=live,
        clock=clock,
        version="1.2.3",
    )
    made = Port(config, store, clock, live, history, app, workers, process)
    return made
