"""An engine that has a few tables, and clients that ask for them."""

from typing import Any

from queryflux.engines.port import ColumnRef, ConnectionSpec, Engine, EngineConnection, TableRef
from queryflux.metadata.answer import answer, shape
from queryflux.metadata.recognise import recognise
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session
from queryflux.results.answer import Shape
from tests.kit.pipelines import identity

ORDERS = TableRef("lake", "main", "orders")
RECENT = TableRef("lake", "main", "recent", "view")
EVENTS = TableRef("lake", "raw", "Events")
OTHER = TableRef("other", "main", "elsewhere")
COLUMNS = [
    ColumnRef(ORDERS, "id", "BIGINT", False, 1),
    ColumnRef(ORDERS, "name", "VARCHAR", True, 2),
    ColumnRef(ORDERS, "price", "DECIMAL(10,2)", True, 3),
    ColumnRef(ORDERS, "placed", "TIMESTAMP WITH TIME ZONE", True, 4),
    ColumnRef(ORDERS, "tags", "VARCHAR[]", True, 5),
    ColumnRef(ORDERS, "paid", "BOOLEAN", True, 6),
    ColumnRef(RECENT, "id", "BIGINT", True, 1),
    ColumnRef(EVENTS, "At", "TIMESTAMP", True, 1),
    ColumnRef(OTHER, "x", "INTEGER", True, 1),
]


class TableEngine(Engine):
    """Lists tables, and counts how often it was asked."""

    engine_key = "listed"
    dialect = "duckdb"

    def __init__(self, *tables: TableRef) -> None:
        self.name = "listed"
        self.listed = list(tables) or [ORDERS, RECENT, EVENTS]
        self.asked = 0
        self.failure: Exception | None = None
        self.places: list[tuple[str, str]] | None = None

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        raise AssertionError("a question about the catalog runs nothing")

    async def probe(self) -> None:
        """Always there."""

    async def tables(self) -> list[TableRef]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return list(self.listed)

    async def schemas(self) -> list[tuple[str, str]] | None:
        return self.places

    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        return [column for column in COLUMNS if column.table in self.listed]

    async def close(self) -> None:
        """Nothing is held."""


PROTOCOLS = {
    "postgres": ClientProtocol.POSTGRES_WIRE,
    "mysql": ClientProtocol.MYSQL_WIRE,
    "trino": ClientProtocol.TRINO_HTTP,
    "": ClientProtocol.FLIGHT_SQL,
}


class Client:
    """One client of a protocol."""

    def __init__(self, dialect: str, engine: TableEngine | None = None, **session: Any) -> None:
        self.dialect = dialect
        self.engine = engine or TableEngine()
        self.session = Session(PROTOCOLS[dialect], peer="127.0.0.1:5", **session)
        self.identity: VerifiedIdentity = identity("ann")

    async def ask(self, text: str, *parameters: Any) -> list[dict[str, Any]]:
        """The rows of an answer."""
        bound = tuple(Parameter(value) for value in parameters)
        question = recognise(text, self.dialect, bound)
        assert question is not None, f"not recognised: {text}"
        table = await answer(question, self.engine, self.session, self.identity)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    async def values(self, text: str, *parameters: Any) -> list[Any]:
        """The values of the first column."""
        return [next(iter(row.values())) for row in await self.ask(text, *parameters)]

    async def describe(self, text: str) -> Shape:
        """What a statement would give."""
        question = recognise(text, self.dialect)
        assert question is not None
        return await shape(question, self.engine, self.session, self.identity)
