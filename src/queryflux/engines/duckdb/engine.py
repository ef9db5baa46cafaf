"""The adapter of one DuckDB cluster."""

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.duckdb.connection import DuckDbConnection, unavailable
from queryflux.engines.duckdb.database import Database
from queryflux.engines.duckdb.lanes import Lane, Lanes
from queryflux.engines.duckdb.metadata import Ask, columns, schemas, tables
from queryflux.engines.duckdb.namespaces import Namespaces
from queryflux.engines.duckdb.work import Worker
from queryflux.engines.port import Capability, ColumnRef, ConnectionSpec, Engine, TableRef
from queryflux.model.errors import EngineUnavailable, QueryFluxError
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.threads import LaneThread


class DuckDbEngine(Engine):
    """DuckDB in this process. The instance is opened by the first statement, in a thread."""

    engine_key = "duckDb"
    dialect = "duckdb"

    def __init__(self, name: str, config: ClusterConfig, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self._of_folder = config.data_path is not None
        self._database = Database(name, config, clock)
        self.capabilities = frozenset(
            {Capability.TRANSACTIONS, Capability.PARAMETERS, Capability.CANCEL, Capability.DESCRIBE}
            | (set() if self._database.guarded else {Capability.WRITES})
        )
        self.lanes = Lanes(name, self._database)
        self.worker = Worker(self._database)
        self.tasks = TaskGroup(f"duckdb-{name}")
        self.namespaces = Namespaces(self.lanes, self.worker, clock, fixed=self._of_folder)
        self._connections: set[DuckDbConnection] = set()

    def connect(self, spec: ConnectionSpec) -> DuckDbConnection:
        connection = DuckDbConnection(self, spec)
        self._connections.add(connection)
        return connection

    async def probe(self) -> None:
        self.check_open()
        try:
            await self.lanes.call(lambda lane: self.worker.rows(lane, "SELECT 1"))
        except EngineUnavailable:
            raise
        except QueryFluxError as error:
            raise EngineUnavailable(f"cluster {self.name}: {error.message}") from error

    async def count_running(self, query: str | None = None) -> int | None:
        """DuckDB is in this process, and so is all that it runs."""
        return self.lanes.busy

    async def tables(self) -> list[TableRef]:
        self.check_open()
        return await self.lanes.call(lambda lane: tables(self._ask(lane), self._of_folder))

    async def schemas(self) -> list[tuple[str, str]]:
        self.check_open()
        return await self.lanes.call(lambda lane: schemas(self._ask(lane)))

    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        self.check_open()
        return await self.lanes.call(lambda lane: columns(self._ask(lane), self._of_folder, schema, table))

    async def close(self) -> None:
        if self.lanes.closed:
            return
        for connection in list(self._connections):
            await connection.close()
        await self.tasks.close()
        await self.lanes.close()
        await self._close_database()

    def check_open(self) -> None:
        """Raises EngineUnavailable once ``close`` has begun."""
        if self.lanes.closed:
            raise unavailable(self.name)

    def forget(self, connection: DuckDbConnection) -> None:
        """It has closed."""
        self._connections.discard(connection)

    def reopen(self) -> None:
        """DuckDB has declared the instance unusable: the next statements get a new one."""
        self._database.invalidate()

    def _ask(self, lane: Lane) -> Ask:
        return lambda sql, values: self.worker.rows(lane, sql, values or None)

    async def _close_database(self) -> None:
        thread = LaneThread(f"duckdb-{self.name}-close")
        await thread.run(self._database.close)
        await thread.join()


def build(name: str, config: ClusterConfig, clock: Clock) -> DuckDbEngine:
    """The adapter of cluster ``name``: file (``databasePath``), folder (``dataPath``) or memory (neither)."""
    return DuckDbEngine(name, config, clock)
