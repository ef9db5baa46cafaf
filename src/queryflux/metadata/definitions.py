"""The tables that each dialect's catalog has: names, columns and their types, read from ``catalogs/``."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

Tables = Mapping[str, Mapping[str, str]]

_FILES = {"postgres": "postgres.txt", "mysql": "mysql.txt", "trino": "trino.txt"}


@cache
def tables_of(dialect: str) -> Tables:
    """Tables by ``schema.table`` in lower case; columns in the spelling that clients see."""
    tables: dict[str, dict[str, str]] = {}
    for line in _logical_lines(_FILES.get(dialect, "plain.txt")):
        name, *columns = line.split()
        pairs = (column.partition(":") for column in columns)
        tables[name] = {column: kind or "text" for column, _, kind in pairs}
    return tables


def postgres_types() -> Iterator[list[str]]:
    """The fields of each line of ``postgres_types.txt``."""
    for line in _logical_lines("postgres_types.txt"):
        yield line.split()


def _logical_lines(name: str) -> Iterator[str]:
    text = resources.files("queryflux.metadata").joinpath("catalogs", name).read_text("utf-8")
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" ") and lines:
            lines[-1] += line
        elif line:
            lines.append(line)
    yield from lines
