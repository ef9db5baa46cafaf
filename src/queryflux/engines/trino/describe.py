"""Parameter types and columns of a statement, by DESCRIBE INPUT and DESCRIBE OUTPUT of the statement sent
along as a prepared one. Nothing is run."""

import re
from collections.abc import Awaitable, Callable
from urllib.parse import quote_plus

from queryflux.engines.trino.rows import PlainRows
from queryflux.engines.trino.types import from_text, postgres_name
from queryflux.model.errors import EngineConnectionLost
from queryflux.results.answer import Shape

NAME = "queryflux_describe"
_GIVES_ROWS = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*(?:select|with|values|table|show|describe|desc|explain|execute)\b",
    re.I | re.S,
)
_TYPE_COLUMN = 4

Ask = Callable[[str, tuple[tuple[str, str], ...]], Awaitable[PlainRows]]


async def shape(sql: str, ask: Ask) -> Shape:
    """The shape of ``sql``. Raises what ``ask`` raises, EngineConnectionLost."""
    from queryflux.engines.trino.columns import Columns  # pyarrow: only where somebody describes

    prepared = (("X-Trino-Prepared-Statement", f"{NAME}={quote_plus(sql)}"),)
    taken = await ask(f"DESCRIBE INPUT {NAME}", prepared)
    parameters = tuple(
        postgres_name(from_text(str(row[1])))
        for row in taken.rows
        if len(row) > 1 and isinstance(row[0], int)
    )
    given = await ask(f"DESCRIBE OUTPUT {NAME}", prepared)
    if not _GIVES_ROWS.match(sql) or not given.rows:
        return Shape(parameters, None)
    names = [str(row[0]) for row in given.rows]
    if any(len(row) <= _TYPE_COLUMN for row in given.rows):
        raise EngineConnectionLost("Trino answered DESCRIBE OUTPUT with what is no description")
    types = [from_text(str(row[_TYPE_COLUMN])) for row in given.rows]
    return Shape(parameters, Columns(names, types).schema)
