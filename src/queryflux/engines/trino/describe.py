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
_NUMBERED = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|(?<![\w$])\$(?P<number>[0-9]{1,5})(?![\w$])""",
    re.S,
)
_CAST = re.compile(
    r"\s{1,9}AS\s{1,9}([A-Z][A-Z ]{0,40}(?:\([A-Z0-9, ()]{1,200}?\))?[A-Z ]{0,20}?)\s{0,9}\)", re.I
)

Ask = Callable[[str, tuple[tuple[str, str], ...]], Awaitable[PlainRows]]


async def shape(sql: str, ask: Ask) -> Shape:
    """The shape of ``sql``. Raises what ``ask`` raises, EngineConnectionLost."""
    from queryflux.engines.trino.columns import Columns  # pyarrow: only where somebody describes

    text, order, casts = _questions(sql)
    prepared = (("X-Trino-Prepared-Statement", f"{NAME}={quote_plus(text)}"),)
    taken = await ask(f"DESCRIBE INPUT {NAME}", prepared)
    parameters = _by_number(
        [
            postgres_name(from_text(str(row[1])))
            for row in taken.rows
            if len(row) > 1 and isinstance(row[0], int)
        ],
        order,
        casts,
    )
    given = await ask(f"DESCRIBE OUTPUT {NAME}", prepared)
    if not _GIVES_ROWS.match(sql) or not given.rows:
        return Shape(parameters, None)
    names = [str(row[0]) for row in given.rows]
    if any(len(row) <= _TYPE_COLUMN for row in given.rows):
        raise EngineConnectionLost("Trino answered DESCRIBE OUTPUT with what is no description")
    types = [from_text(str(row[_TYPE_COLUMN])) for row in given.rows]
    return Shape(parameters, Columns(names, types).schema)


def _questions(sql: str) -> tuple[str, list[int], dict[int, str]]:
    """The text with ``?`` for ``$n``, which Trino does not know; the numbers in the order in which they stand
    there; and the types that they are cast to, of which Trino makes nothing. Nothing moves: errors point into
    the text."""
    order: list[int] = []
    casts: dict[int, str] = {}

    def question(found: re.Match[str]) -> str:
        if found["number"] is None:
            return found[0]
        number = int(found["number"])
        order.append(number)
        if (cast := _CAST.match(sql, found.end())) is not None:
            casts.setdefault(number, postgres_name(from_text(cast[1])))
        return "?".ljust(len(found[0]))

    return _NUMBERED.sub(question, sql), order, casts


def _by_number(types: list[str], order: list[int], casts: dict[int, str]) -> tuple[str, ...]:
    """The types of ``$1``, ``$2`` and so on, each that of its first place where one is known."""
    if len(types) != len(order):
        return tuple(types)  # they are all ``?``
    known: dict[int, str] = {}
    for number, name in zip(order, types, strict=True):
        known[number] = known.get(number) or name
    return tuple(known.get(number) or casts.get(number, "") for number in range(1, max(order, default=0) + 1))
