"""The adapter of one Trino cluster."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.port import Capability, ColumnRef, ConnectionSpec, Engine, TableRef
from queryflux.engines.trino.batches import DECODED_ON_THE_LOOP
from queryflux.engines.trino.client import Client
from queryflux.engines.trino.connection import TrinoConnection
from queryflux.engines.trino.metadata import columns, places, schemas, tables
from queryflux.engines.trino.places import Places
from queryflux.engines.trino.rows import PlainRows, run
from queryflux.engines.trino.session import SOURCE, ascii_value
from queryflux.engines.trino.statement import Pairs, TrinoStatement, Way
from queryflux.engines.trino.target import Target, target
from queryflux.model.errors import EngineError, EngineUnavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.runtime.clock import Clock
from queryflux.runtime.connections import Broken, Call, Unreachable
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.threads import LaneThread
from queryflux.wire.http1 import encode_request

if TYPE_CHECKING:
    import pyarrow as pa

    from queryflux.engines.trino.columns import Columns

PROBE_SECONDS = 10.0
COUNTER = "queryflux-count"
"""The source of the query that counts the others."""
RUNNING = (
    "SELECT count(*) FROM system.runtime.queries"  # noqa: S608
    f" WHERE state NOT IN ('QUEUED', 'FINISHED', 'FAILED') AND coalesce(source, '') <> '{COUNTER}'"
)


class TrinoEngine(Engine):
    """A coordinator, reached over HTTP."""

    engine_key = "trino"
    dialect = "trino"
    native_protocol = ClientProtocol.TRINO_HTTP
    capabilities = frozenset(
        {
            Capability.TRANSACTIONS,
            Capability.WRITES,
            Capability.CANCEL,
            Capability.DESCRIBE,
            Capability.RESUME,
            Capability.CATALOGS,
        }
    )

    def __init__(self, name: str, where: Target, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.client = Client(where, clock)
        self.tasks = TaskGroup(f"trino-{name}")
        self._target = where
        self.way = Way(self.client, clock, self.tasks)
        self.places = Places(self._places, clock, self.tasks)
        self._connections: set[TrinoConnection] = set()
        self._decoder: LaneThread | None = None
        self.closed = False
        common = [("Host", where.authority), ("User-Agent", SOURCE), ("Accept-Encoding", "identity")]
        if where.authorization is not None:
            common.append(("Authorization", where.authorization))
        self._common = tuple(common)

    def base_headers(self, identity: VerifiedIdentity) -> tuple[tuple[str, str], ...]:
        """What every request on somebody's behalf carries. Raises InvalidRequest for a user name that a
        header cannot hold."""
        return self._for_user(self._target.user(identity))

    def _for_user(self, user: str | None) -> tuple[tuple[str, str], ...]:
        if user is None:
            return self._common
        return (*self._common, ("X-Trino-User", ascii_value("the user name", user)))

    def statement(self, headers: Pairs) -> TrinoStatement:
        """A statement to be; ``headers`` are those of ``base_headers``."""
        return TrinoStatement(self.way, headers)

    def connect(self, spec: ConnectionSpec) -> TrinoConnection:
        connection = TrinoConnection(self, spec)
        self._connections.add(connection)
        return connection

    def forget(self, connection: TrinoConnection) -> None:
        """It has closed."""
        self._connections.discard(connection)

    def check_open(self) -> None:
        """Raises EngineUnavailable once ``close`` has begun."""
        if self.closed:
            raise EngineUnavailable(f"cluster {self.name} is shut down")

    async def decode(self, columns: "Columns", data: msgspec.Raw) -> "pa.RecordBatch":
        """A page's rows as a batch; large ones in a thread, so that the loop goes on meanwhile."""
        if len(bytes(data)) <= DECODED_ON_THE_LOOP:
            return columns.batch(data)
        self.check_open()
        if self._decoder is None:
            self._decoder = LaneThread(f"trino-{self.name}-decode")
        return await self._decoder.run(columns.batch, data)

    async def probe(self) -> None:
        self.check_open()
        message = encode_request("GET", f"{self._target.base}/v1/info", self._common)
        try:
            response = await self.client.request("GET", message, Call(), seconds=PROBE_SECONDS)
        except (Unreachable, Broken) as error:
            raise EngineUnavailable(f"cluster {self.name}: {error}") from error
        if response.status != 200:
            raise EngineUnavailable(f"cluster {self.name}: /v1/info answered {response.status}")
        if self._info(response.body).get("starting") is not False:
            raise EngineUnavailable(f"cluster {self.name}: Trino is still starting")

    def _info(self, body: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineUnavailable(f"cluster {self.name}: /v1/info is no answer of Trino's") from error

    async def _ask(self, sql: str, source: str = SOURCE) -> PlainRows:
        """A question of our own, with the cluster's own credentials."""
        self.check_open()
        user = self._target.service_user or SOURCE
        headers = self._for_user(user if self._target.names_user else None)
        statement = self.statement(headers)
        return await run(statement, sql, (("X-Trino-Source", source),))

    async def count_running(self, query: str | None = None) -> int | None:
        rows = (await self._ask(query or RUNNING, COUNTER)).rows
        if len(rows) != 1 or not rows[0] or type(rows[0][0]) is not int:
            raise EngineError(f"cluster {self.name}: what counts its queries gives no single number")
        return rows[0][0]

    async def tables(self) -> list[TableRef]:
        return await tables(self._ask)

    async def schemas(self) -> list[tuple[str, str]] | None:
        return await schemas(self._ask)

    async def _places(self) -> list[tuple[str, str]]:
        return (await places(self._ask))[0]

    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        return await columns(self._ask, schema, table)

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
        self.places.close()
        await self.tasks.wait()
        self.client.close()
        if self._decoder is not None:
            await self._decoder.join()
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next turn


def build(name: str, config: ClusterConfig, clock: Clock) -> TrinoEngine:
    """The adapter of cluster ``name``. Raises ConfigError; touches no network."""
    return TrinoEngine(name, target(name, config), clock)
