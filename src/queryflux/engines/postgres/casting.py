"""A query with some of its columns cast in the server, since ADBC would give them in raw binary."""

from collections.abc import Sequence

from queryflux.engines.postgres.text import main_statement

_SELECTS = {"SELECT", "WITH", "VALUES", "TABLE", "("}


def casting(sql: str, columns: Sequence[tuple[str, str]], word: str) -> str:
    """``sql``, which begins with ``word``; ``columns``: each column and the type to cast it to, or none.

    What writes must stay at the top of a WITH (manual, "Data-Modifying Statements in WITH").
    """
    names = ", ".join(f"c{number}" for number in range(1, len(columns) + 1))
    outputs = ", ".join(
        f"qf_.c{number}{f'::{cast}' if cast else ''} AS {_quoted(name)}"
        for number, (name, cast) in enumerate(columns, 1)
    )
    main = main_statement(sql) if word == "WITH" else 0
    if main:
        return f"{sql[:main]}, qf_({names}) AS ({sql[main:]}\n) SELECT {outputs} FROM qf_"  # noqa: S608
    if word in _SELECTS:
        return f"SELECT {outputs} FROM ({sql}\n) AS qf_({names})"  # noqa: S608
    return f"WITH qf_({names}) AS ({sql}\n) SELECT {outputs} FROM qf_"  # noqa: S608


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
