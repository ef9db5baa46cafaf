"""What a lane's thread does: one function for each call, each of them blocking."""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from queryflux.engines.duckdb.database import Database
from queryflux.engines.duckdb.errors import READABLE, translate
from queryflux.engines.duckdb.guard import check
from queryflux.engines.duckdb.lanes import Lane
from queryflux.engines.duckdb.parameters import Guesses, bind_values, kinds_of, settle
from queryflux.engines.duckdb.schema import extend, extended, postgres_name
from queryflux.engines.duckdb.seam import arrow_schema, bind, run, stream
from queryflux.engines.duckdb.statements import Effect, Parsed, Statements
from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.model.statement import Parameter
from queryflux.results.answer import Shape

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 16384
_CHANGES_TABLES = {"ALTER", "CREATE", "DROP", "ATTACH", "DETACH"}


@dataclass(slots=True)
class Outcome:
    """What came of starting a statement. ``schema`` is None when it gave no rows; ``ended`` says that
    ``batches`` hold all of the result and the lane is free."""

    effect: Effect
    tag: str = ""
    affected: int | None = None
    schema: "pa.Schema | None" = None
    batches: "list[pa.RecordBatch]" = field(default_factory=list)
    ended: bool = True


class Worker:
    """The blocking side of one cluster, shared by its lanes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements = Statements(check if database.guarded else None)
        self._guesses = Guesses()

    def start(self, lane: Lane, sql: str, parameters: tuple[Parameter, ...], target: str | None) -> Outcome:
        """Run a statement up to its first batch, or to its end. Raises QueryFluxError."""
        try:
            parsed = self._prepare(lane, sql, target)
            values = bind_values(parameters, lambda: self._kinds(lane, sql, parameters))
            if parsed.rows:
                return self._stream(lane, sql, values, parsed)
            return self._run(lane, sql, values, parsed)
        except QueryFluxError:
            raise
        except (duckdb.Error, OSError, ValueError, TypeError, OverflowError) as error:
            lane.close_reader()
            raise self._explained(translate(error, sql)) from error

    def read_more(self, lane: Lane, schema: "pa.Schema", sql: str) -> "tuple[list[pa.RecordBatch], bool]":
        """``read``, with errors as ours. Raises QueryFluxError."""
        try:
            return read(lane, schema)
        except (duckdb.Error, OSError, ValueError) as error:
            lane.close_reader()
            raise self._explained(translate(error, sql)) from error

    def command(self, lane: Lane, sql: str) -> None:
        """Run a statement of our own that gives nothing. Raises QueryFluxError."""
        try:
            lane.cursor.sql(sql)
        except duckdb.Error as error:
            raise translate(error, sql) from error

    def rows(self, lane: Lane, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a small question of our own. Raises QueryFluxError."""
        try:
            if self._database.folder is not None:
                _ = lane.cursor
                self._database.folder.refresh()
            return lane.cursor.execute(sql, values).fetchall()
        except duckdb.Error as error:
            raise translate(error, sql) from error

    def describe(
        self, lane: Lane, sql: str, target: str | None, parameters: tuple[Parameter, ...] = ()
    ) -> Shape:
        """Parameter types and columns; ``parameters`` have the types that the client has named, without
        values. Raises QueryFluxError."""
        try:
            self._prepare(lane, sql, target)
            return self._shape(lane, sql, parameters)
        except duckdb.Error as error:
            raise self._explained(_with_position(lane, sql, error)) from error

    def _kinds(self, lane: Lane, sql: str, parameters: tuple[Parameter, ...]) -> list[Any]:
        """Of text, whatever the client calls it, the binder says what it is read as."""
        declared = ["" if isinstance(item.value, str) else item.type_name for item in parameters]
        return kinds_of(partial(bind, lane.cursor), sql, declared, self._guesses, lane.target or "")[0]

    def _shape(self, lane: Lane, sql: str, parameters: tuple[Parameter, ...]) -> Shape:
        declared = [parameter.type_name for parameter in parameters]
        kinds, bound = settle(partial(bind, lane.cursor), sql, declared, self._guesses, lane.target or "")
        parameter_types = tuple(postgres_name(kind) for kind in kinds)
        if bound.returns != "query_result":
            return Shape(parameter_types, None)
        types = ["VARCHAR" if str(kind) in {'"NULL"', "UNKNOWN"} else kind for kind in bound.types]
        schema = arrow_schema(lane.cursor, bound.names, types)
        for index, name in enumerate(bound.names):  # it numbers those that come twice
            schema = schema.set(index, schema.field(index).with_name(name))
        return Shape(parameter_types, extended(schema, bound.types))

    def _prepare(self, lane: Lane, sql: str, target: str | None) -> Parsed:
        cursor = lane.cursor
        if self._database.folder is not None:
            self._database.folder.refresh()
        parsed = self._parse(lane, sql)
        wanted = target or (lane.target and self._database.home)
        if wanted != lane.target:
            cursor.execute(f"USE {wanted}").fetchall()
            lane.target = wanted
        return parsed

    def _parse(self, lane: Lane, sql: str) -> Parsed:
        try:
            return self._statements.parse(sql)
        except ValueError as error:
            raise EngineError(
                "this kind of statement is not supported", kind=EngineErrorKind.NOT_SUPPORTED
            ) from error
        except duckdb.Error:
            bind(lane.cursor, sql)  # raises the same, with the position
            raise

    def _stream(self, lane: Lane, sql: str, values: list[Any] | None, parsed: Parsed) -> Outcome:
        lane.reader, types = stream(lane.cursor, sql, values, BATCH_ROWS)
        schema = extended(lane.reader.schema, types)
        batches, ended = read(lane, schema)
        return Outcome(parsed.effect, schema=schema, batches=batches, ended=ended)

    def _run(self, lane: Lane, sql: str, values: list[Any] | None, parsed: Parsed) -> Outcome:
        """Anything that may change something: it runs to its end at once, and may yet return rows."""
        returns = bind(lane.cursor, sql).returns
        relation = run(lane.cursor, sql, values)
        if parsed.type in _CHANGES_TABLES:
            self._guesses.clear()
        outcome = Outcome(parsed.effect, tag=parsed.tag)
        if relation is None or returns == "nothing":
            return outcome
        if returns == "changed_rows":
            counted = relation.fetchall()
            outcome.affected = int(counted[0][0]) if counted else None
            return outcome
        lane.reader = relation.to_arrow_reader(BATCH_ROWS)
        outcome.schema = extended(lane.reader.schema, relation.types)
        outcome.batches, outcome.ended = read(lane, outcome.schema)
        return outcome

    def _explained(self, error: QueryFluxError) -> QueryFluxError:
        """Add why a table of the folder is missing, where that is known, and leave out where on this host
        the folder is."""
        folder = self._database.folder
        if folder is None or not isinstance(error, EngineError):
            return error
        if error.kind is EngineErrorKind.TABLE_NOT_FOUND and (reason := folder.why_missing(error.message)):
            error.hint = reason
        if error.kind is EngineErrorKind.TABLE_NOT_FOUND and "/" in error.message:
            error.hint = READABLE  # FROM '/somewhere/file.csv': DuckDB takes it for a name
        error.message, error.hint = folder.relative(error.message), folder.relative(error.hint)
        return error


def read(lane: Lane, schema: "pa.Schema") -> "tuple[list[pa.RecordBatch], bool]":
    """The next batch in ``schema``, and whether it was the last. A short batch is most likely the last:
    asking again costs nothing and spares the loop a turn."""
    batches: list[pa.RecordBatch] = []
    while lane.reader is not None:
        try:
            batch = lane.reader.read_next_batch()
        except StopIteration:
            lane.close_reader()
            return batches, True
        batches.append(extend(batch, schema))
        if batch.num_rows >= BATCH_ROWS or len(batches) > 1:
            return batches, False
    return batches, True


def _with_position(lane: Lane, sql: str, error: duckdb.Error) -> QueryFluxError:
    """The binder, asked alone, does not say where: PREPARE does, and runs nothing either."""
    found = translate(error, sql)
    if found.position is not None:
        return found
    prefix = "PREPARE queryflux_describe AS "
    try:
        lane.cursor.execute(prefix + sql)
        lane.cursor.execute("DEALLOCATE queryflux_describe")
    except duckdb.Error as again:
        position = translate(again, prefix + sql).position
        if position is not None and position >= len(prefix):
            found.position = position - len(prefix)
    return found
