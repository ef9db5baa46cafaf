"""Small answers as plain Python values, for questions of our own: no pyarrow is loaded for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from queryflux.engines.trino.batches import read_page
from queryflux.engines.trino.statement import Pairs, TrinoStatement
from queryflux.model.errors import EngineConnectionLost
from queryflux.results.answer import EngineStats

_decode = msgspec.json.Decoder(list[list[Any]]).decode


@dataclass(slots=True)
class PlainRows:
    """All rows of an answer, and the X-Trino-* headers of its pages."""

    rows: list[list[Any]] = field(default_factory=list)
    names: Sequence[str] = ()
    types: Sequence[str] = ()
    headers: dict[str, str] = field(default_factory=dict)


async def run(statement: TrinoStatement, sql: str, headers: Pairs, *, shown: str | None = None) -> PlainRows:
    """Run a statement to its end. Errors point into ``shown`` where that is given. Raises as
    ``EngineConnection.execute``."""
    found = PlainRows()
    stats = EngineStats()
    try:
        response = await statement.post(sql, headers)
        while True:
            page = read_page(statement, response.body, sql if shown is None else shown, stats)
            found.headers.update(pair for pair in response.pairs if pair[0].startswith("x-trino-"))
            if page.columns:
                found.names = [column.name for column in page.columns]
                found.types = [column.type for column in page.columns]
            if bytes(page.data):
                found.rows.extend(_rows(page.data))
            if statement.ended:
                return found
            response = await statement.get()
    finally:
        await statement.stop()


def _rows(data: msgspec.Raw) -> list[list[Any]]:
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise EngineConnectionLost(f"Trino answered with rows that are none: {error}") from error
