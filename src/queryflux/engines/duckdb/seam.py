"""The one place that calls DuckDB's relation seam, which its public relations are made of.

``con.sql(q).to_arrow_reader(n)`` binds a statement twice and looks for Python variables of the callers: the
seam binds once and looks at nothing, which makes a small query a third faster. The names are not public, so
the package is pinned to one minor version and a test holds us to what is used here.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
from duckdb import _seam

if TYPE_CHECKING:
    import pyarrow as pa

Cursor = duckdb.DuckDBPyConnection
Values = list[Any] | None


@dataclass(frozen=True, slots=True)
class Bound:
    """What the binder says of one statement. ``returns`` is ``query_result``, ``changed_rows`` or
    ``nothing``; type names are DuckDB's, ``UNKNOWN`` where a parameter leaves them open."""

    names: list[str]
    types: list[Any]
    parameters: list[tuple[str, Any]]
    returns: str


def bind(cursor: Cursor, sql: str, values: Values = None) -> Bound:
    """Bind one statement without running it. Raises duckdb.Error."""
    signature = _seam.bind(cursor, sql, values=values)
    return Bound(signature.names, signature.types, signature.parameters, signature.return_type)


def stream(
    cursor: Cursor, sql: str, values: Values, batch_rows: int
) -> tuple["pa.RecordBatchReader", list[Any]]:
    """Start a statement that gives rows; they are computed as the reader is read. Also the DuckDB types of
    its columns. Raises duckdb.Error."""
    result = _seam.submit(cursor, sql, values, "stream", batch_rows)
    types = [column[1] for column in result.description]
    return result.arrow_reader(), types


def run(cursor: Cursor, sql: str, values: Values) -> Any:
    """Run a statement that changes something, to its end; the relation over what it returned, or None."""
    return cursor.sql(sql, params=values)


def arrow_schema(cursor: Cursor, names: list[str], types: list[Any]) -> "pa.Schema":
    """The Arrow schema that columns of these DuckDB types are read with."""
    return _seam.arrow_schema(cursor, names, types)
