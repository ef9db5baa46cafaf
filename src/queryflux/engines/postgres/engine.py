"""The PostgreSQL engine: a pool of connections for relayed statements, one of ADBC lanes for others."""

import asyncio
import logging
from typing import TYPE_CHECKING

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.port import (
    Capability,
    ColumnRef,
    ConnectionSpec,
    Engine,
    EngineConnection,
    TableRef,
)
from queryflux.engines.postgres import catalog
from queryflux.engines.postgres.connection import PostgresConnection
from queryflux.engines.postgres.link import Reply, ServerLink, StatementKey, open_link
from queryflux.engines.postgres.pool import Pool
from queryflux.engines.postgres.settings import Settings, literal
from queryflux.engines.postgres.target import target_of
from queryflux.model.errors import EngineError, EngineUnavailable, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup

if TYPE_CHECKING:
    from queryflux.engines.postgres.lanes import Lanes

MAX_SEEN = 16_384
MAX_SETTINGS = 1024
PROBE_TIMEOUT = 5.0
CANCEL_TIMEOUT = 5.0

log = logging.getLogger(__name__)


class PostgresEngine(Engine):
    """Made by ``build``. ``poolSize`` bounds the relay's connections and, apart from them, the ADBC ones."""

    engine_key = "postgres"
    dialect = "postgres"
    native_protocol = ClientProtocol.POSTGRES_WIRE
    capabilities = frozenset(
        {
            Capability.TRANSACTIONS,
            Capability.SAVEPOINTS,
            Capability.PARAMETERS,
            Capability.WRITES,
            Capability.CANCEL,
            Capability.DESCRIBE,
        }
    )

    def __init__(self, name: str, config: ClusterConfig, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.target = target_of(name, config)
        self.tasks = TaskGroup(f"postgres {name}")
        self.pool: Pool[ServerLink] = Pool(self.target.where, self.target.pool_size, self._open, clock)
        self._lanes: Lanes | None = None
        self._connections: set[PostgresConnection] = set()
        self._seen: set[int] = set()
        self._settings: dict[Settings, Settings] = {}
        self._closed = False

    async def _open(self) -> ServerLink:
        return await open_link(self.target)

    # For its connections.

    @property
    def lanes(self) -> "Lanes":
        """The ADBC side, made when first asked for: importing it is heavy."""
        if self._lanes is None:
            from queryflux.engines.postgres.lanes import Lanes

            self._lanes = Lanes(self)
        return self._lanes

    def seen_before(self, key: StatementKey) -> bool:
        """Whether a statement comes for the second time at least."""
        mark = hash(key)
        if mark in self._seen:
            return True
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen.add(mark)
        return False

    def interned(self, settings: Settings) -> Settings:
        """The same tuple for the same settings, so that comparing them costs nothing as a rule."""
        if len(self._settings) >= MAX_SETTINGS:
            self._settings.clear()
        return self._settings.setdefault(settings, settings)

    def gone(self, connection: PostgresConnection) -> None:
        """A connection is closing."""
        self._connections.discard(connection)

    # The port.

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        connection = PostgresConnection(self, spec)
        self._connections.add(connection)
        return connection

    async def ask(self, sql: str) -> Reply:
        """Run a statement of ours on a pooled connection. Raises as ``EngineConnection.execute``."""
        link = self.pool.take(()) or await self.pool.acquire(())
        try:
            if link.settings:
                await link.apply(())
            return await link.simple(sql)
        except EngineError:
            raise
        except BaseException:
            link.broken = True
            raise
        finally:
            if link.usable:
                self.pool.give(link)
            else:
                link.broken = True
                self.pool.drop(link)

    async def cancel_backend(self, pid: int, started: str) -> None:
        """Cancel what a server process runs, if it is still the one that ``started`` then; never waits for a
        pooled connection. Failures are logged."""
        sql = (
            f"SELECT pg_catalog.pg_cancel_backend(pid) FROM pg_catalog.pg_stat_activity"  # noqa: S608
            f" WHERE pid = {pid:d} AND extract(epoch FROM backend_start)::text = {literal(started)}"
        )
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                link = await open_link(self.target)
                try:
                    await link.simple(sql)
                finally:
                    link.close()
        except (QueryFluxError, OSError) as error:
            log.warning("could not cancel at PostgreSQL %s: %s", self.target.where, error)

    async def probe(self) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                link = await open_link(self.target)
                try:
                    await link.simple("SELECT 1")
                finally:
                    link.close()
        except EngineUnavailable:
            raise
        except Exception as error:
            reason = str(error) or f"no answer within {PROBE_TIMEOUT:.0f} s"
            raise EngineUnavailable(f"PostgreSQL at {self.target.where}: {reason}") from error

    async def count_running(self, query: str | None = None) -> int | None:
        reply = await self.ask(query or catalog.RUNNING)
        value = reply.rows[0][0] if len(reply.rows) == 1 and reply.rows[0] else None
        if value is None or not value.isdigit():
            raise EngineError(f"cluster {self.name}: what counts its queries gives no single number")
        return int(value)

    async def tables(self) -> list[TableRef]:
        reply = await self.ask(catalog.TABLES)
        return catalog.table_refs(reply.rows)

    async def schemas(self) -> list[tuple[str, str]]:
        reply = await self.ask(catalog.SCHEMAS)
        return catalog.schema_names(reply.rows)

    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        reply = await self.ask(catalog.columns_sql(schema, table))
        return catalog.column_refs(reply.rows)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.pool.close()
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
        if self._lanes is not None:
            await self._lanes.close()
        await self.tasks.close()


def build(name: str, config: ClusterConfig, clock: Clock) -> Engine:
    """The engine of cluster ``name``; touches no network. Raises ConfigError."""
    return PostgresEngine(name, config, clock)
