"""Answers that the door itself makes: small tables about the connection."""

from collections.abc import Iterable
from dataclasses import dataclass

from queryflux.frontends.mysql.local import (
    SelectItems,
    ShowCharacterSets,
    ShowDiagnostics,
    ShowProcesses,
    ShowVariables,
)
from queryflux.frontends.mysql.session import ClientSession
from queryflux.wire.mysql.replies import Cell, Column, number_column

Question = SelectItems | ShowCharacterSets | ShowDiagnostics | ShowProcesses | ShowVariables


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows."""

    columns: list[Column]
    rows: list[list[Cell]]


@dataclass(frozen=True, slots=True)
class Process:
    """One line of SHOW PROCESSLIST; ``seconds`` in its present state."""

    connection_id: int
    user: str
    peer: str
    database: str
    command: str
    seconds: int
    info: str


_CHARACTER_SETS = (
    ("binary", "Binary pseudo charset", "binary", 1, 63),
    ("utf8mb4", "UTF-8 Unicode", "utf8mb4_general_ci", 4, 45),
)


def answer(
    question: Question, session: ClientSession, processes: Iterable[Process], status: dict[str, str]
) -> Table:
    """The answer to a question about the connection. Raises ServerError."""
    if isinstance(question, SelectItems):
        values = session.select(question.expressions)
        columns = [
            number_column(name) if isinstance(value, int) else Column(name)
            for name, value in zip(question.names, values, strict=True)
        ]
        return Table(columns, [] if question.empty else [values])
    if isinstance(question, ShowDiagnostics):
        return _diagnostics(question, session)
    if isinstance(question, ShowVariables):
        return _variables(question, session, status)
    if isinstance(question, ShowProcesses):
        return _processes(processes)
    return _character_sets(question)


def _diagnostics(question: ShowDiagnostics, session: ClientSession) -> Table:
    error = session.error
    if question.count:
        name = "@@session.error_count" if question.errors_only else "@@session.warning_count"
        return Table([number_column(name)], [[int(error is not None)]])
    columns = [Column("Level"), number_column("Code"), Column("Message")]
    rows: list[list[Cell]] = [["Error", error.number, error.message]] if error is not None else []
    return Table(columns, rows)


def _variables(question: ShowVariables, session: ClientSession, status: dict[str, str]) -> Table:
    pairs: Iterable[tuple[str, str]] = (
        sorted(status.items()) if question.status else session.variables.listed(globally=question.globally)
    )
    only = question.only
    rows: list[list[Cell]] = [[name, value] for name, value in pairs if only is None or only.matches(name)]
    return Table([Column("Variable_name"), Column("Value")], rows)


def _processes(processes: Iterable[Process]) -> Table:
    names = ("User", "Host", "db", "Command")
    columns = [number_column("Id"), *map(Column, names), number_column("Time"), Column("State")]
    rows: list[list[Cell]] = [
        [
            item.connection_id,
            item.user,
            item.peer,
            item.database or None,
            item.command,
            item.seconds,
            "executing" if item.info else "",
            item.info or None,
        ]
        for item in processes
    ]
    return Table([*columns, Column("Info")], rows)


def _character_sets(question: ShowCharacterSets) -> Table:
    if question.collations:
        columns = [
            Column("Collation"),
            Column("Charset"),
            number_column("Id"),
            Column("Default"),
            Column("Compiled"),
            number_column("Sortlen"),
            Column("Pad_attribute"),
        ]
        rows: list[list[Cell]] = [
            [collation, name, number, "Yes", "Yes", 1, "NO PAD" if name == "binary" else "PAD SPACE"]
            for name, _, collation, _, number in _CHARACTER_SETS
        ]
        return Table(columns, rows)
    names = [Column("Charset"), Column("Description"), Column("Default collation"), number_column("Maxlen")]
    return Table(
        names, [[name, words, collation, width] for name, words, collation, width, _ in _CHARACTER_SETS]
    )
