"""Where a client's unqualified names are looked up.

A session's catalog and schema count when the instance has them; a PostgreSQL client's database name or a
MySQL client's schema that DuckDB does not know changes nothing. A schema alone is looked for in the
instance's own database first, then as a database. In a folder there is one place only.
"""

from queryflux.engines.duckdb.folder import quoted
from queryflux.engines.duckdb.lanes import Lane, Lanes
from queryflux.engines.duckdb.work import Worker
from queryflux.model.statement import Session
from queryflux.runtime.clock import Clock

LOOK_AGAIN_SECONDS = 2.0
_SQL = """
SELECT database_name, schema_name,
  (SELECT database_name FROM duckdb_databases() WHERE NOT internal ORDER BY database_oid LIMIT 1)
FROM duckdb_schemas()
"""

Known = dict[tuple[str, str], str]
"""Catalog and schema in lower case, and how to USE them."""


class Namespaces:
    """The schemas of an instance, looked up again when a client names one that is not known."""

    def __init__(self, lanes: Lanes, worker: Worker, clock: Clock, *, fixed: bool) -> None:
        self._lanes = lanes
        self._worker = worker
        self._clock = clock
        self._fixed = fixed
        self._known: Known = {}
        self._home = ""
        self._due = 0.0

    async def target(self, session: Session) -> str | None:
        """What to USE for a statement; None for where every cursor begins. Raises EngineUnavailable."""
        if self._fixed or (session.catalog is None and session.database is None):
            return None
        found = self._find(session)
        if found is None and self._clock.monotonic() >= self._due:
            await self._look()
            found = self._find(session)
        return found

    def _find(self, session: Session) -> str | None:
        catalog = (session.catalog or "").lower()
        schema = (session.database or "").lower()
        home = self._home
        candidates = ((catalog, schema), (home, schema), (schema, "main"), (catalog, "main"))
        return next((self._known[pair] for pair in candidates if pair in self._known), None)

    async def _look(self) -> None:
        self._due = self._clock.monotonic() + LOOK_AGAIN_SECONDS

        def ask(lane: Lane) -> list[tuple[str, str, str]]:
            return [(str(row[0]), str(row[1]), str(row[2])) for row in self._worker.rows(lane, _SQL)]

        rows = await self._lanes.call(ask)
        self._home = rows[0][2].lower() if rows else ""
        self._known = {
            (catalog.lower(), schema.lower()): f"{quoted(catalog)}.{quoted(schema)}"
            for catalog, schema, _ in rows
            if catalog not in {"system", "temp"}
        }
