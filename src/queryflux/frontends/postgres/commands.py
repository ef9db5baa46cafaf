"""Statements about the session itself: SET, RESET, SHOW, DISCARD, DEALLOCATE and transaction control.

On an engine that speaks PostgreSQL they go to the server as well, whose answer the client gets; on any other
engine the door answers them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from queryflux.model.errors import NotSupported
from queryflux.pipeline.face import Classification, StatementKind
from queryflux.wire.postgres.constants import Oid
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.messages import Column

SPECIAL = {
    StatementKind.SET,
    StatementKind.RESET,
    StatementKind.SHOW,
    StatementKind.DEALLOCATE,
    StatementKind.BEGIN,
    StatementKind.COMMIT,
    StatementKind.ROLLBACK,
    StatementKind.LISTEN,
    StatementKind.CURSOR,
    StatementKind.COPY,
}
CONTROL = {StatementKind.BEGIN, StatementKind.COMMIT, StatementKind.ROLLBACK}

MAX_COMMAND = 16 * 1024
"""Longer texts, in characters, are none of these."""

_NAME = r"\"?[A-Za-z_][\w.$]*\"?"
_SET = re.compile(
    rf"SET\s+(?:(?P<scope>SESSION|LOCAL)\s+)?(?P<name>{_NAME}|TIME\s+ZONE|NAMES)\s*"
    r"(?:=|\bTO\b|(?<=ZONE)|(?<=NAMES))\s*(?P<value>.+)",
    re.IGNORECASE | re.DOTALL,
)
_NO_SETTING = re.compile(
    r"SET\s+(?:(?:SESSION|LOCAL)\s+)?(?P<what>TRANSACTION|CHARACTERISTICS|CONSTRAINTS|ROLE|"
    r"(?:SESSION\s+)?AUTHORIZATION)\b(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SHOW = re.compile(
    rf"SHOW\s+(?P<name>TRANSACTION\s+ISOLATION\s+LEVEL|TIME\s+ZONE|SESSION\s+AUTHORIZATION|{_NAME})",
    re.IGNORECASE,
)
_RESET = re.compile(rf"RESET\s+(?P<name>TIME\s+ZONE|SESSION\s+AUTHORIZATION|{_NAME})", re.IGNORECASE)
_DISCARD = re.compile(r"DISCARD\s+(?P<what>ALL|PLANS|SEQUENCES|TEMP|TEMPORARY)", re.IGNORECASE)
_DEALLOCATE = re.compile(
    r"DEALLOCATE\s+(?:PREPARE\s+)?(?P<name>\"(?:[^\"]|\"\")+\"|[A-Za-z_][\w$]*)", re.IGNORECASE
)
_CLOSE_ALL = re.compile(r"CLOSE\s+ALL", re.IGNORECASE)
_COMMENTS = re.compile(r"(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_LONG_NAMES = {
    "TRANSACTION ISOLATION LEVEL": "transaction_isolation",
    "TIME ZONE": "TimeZone",
    "SESSION AUTHORIZATION": "session_authorization",
}


@dataclass(frozen=True, slots=True)
class SetCommand:
    """SET of one setting; ``value`` None is DEFAULT."""

    name: str
    value: str | None
    local: bool


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """RESET; an empty name is ALL."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowCommand:
    """SHOW; an empty name is ALL."""

    name: str


@dataclass(frozen=True, slots=True)
class DiscardCommand:
    """DISCARD; ``what`` in upper case."""

    what: str


@dataclass(frozen=True, slots=True)
class DeallocateCommand:
    """DEALLOCATE of a prepared statement; an empty name is ALL."""

    name: str


@dataclass(frozen=True, slots=True)
class NoCommand:
    """Accepted, for what it asks is so already (SET TRANSACTION on an engine with one isolation level, CLOSE
    ALL and UNLISTEN where there is nothing to close); ``tag`` where it is not SET."""

    tag: str = ""


@dataclass(frozen=True, slots=True)
class TypesCommand:
    """A driver asks for types it does not know (introspection.py)."""


@dataclass(frozen=True, slots=True)
class NumberCommand:
    """A client asks for the number of its session. ``name`` is that of the column."""

    name: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the answer looks like."""
        return (Column(self.name, Oid.INT4, 4),)


Command = (
    SetCommand
    | ResetCommand
    | ShowCommand
    | DiscardCommand
    | DeallocateCommand
    | NoCommand
    | TypesCommand
    | NumberCommand
)
_NUMBER = "pg_backend_pid"
_LONGEST_NUMBER = 128
_SESSION_NUMBER = re.compile(
    rf'select\s+(?:pg_catalog\.)?{_NUMBER}\(\s*\)(?:\s+as\s+(?:"(\w+)"|(\w+)))?\s*;?\s*', re.IGNORECASE
)


def says_number(text: str) -> bool:
    """Whether ``number_command`` is worth a try."""
    return len(text) <= _LONGEST_NUMBER and _NUMBER in text.lower()


def number_command(text: str) -> NumberCommand | None:
    """``SELECT pg_backend_pid()`` and nothing else."""
    found = _SESSION_NUMBER.fullmatch(text) if says_number(text) else None
    return None if found is None else NumberCommand(found[1] or (found[2] or _NUMBER).lower())


@dataclass(frozen=True, slots=True)
class Reply:
    """What the door answers itself: a tag, and rows where there are any."""

    tag: str
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str | int | None, ...], ...] = ()


def read_command(text: str, classification: Classification) -> Command | None:
    """What a statement asks of the session; None when it is nothing that this door answers itself. Raises
    PostgresError for one that it must refuse."""
    reader = _READERS.get(classification.kind)
    if reader is None:
        return None
    leading = _COMMENTS.match(text)
    words = text[leading.end() :] if leading else text
    return reader(words.strip().removesuffix(";").rstrip()) if len(words) <= MAX_COMMAND else None


_FOREIGN: dict[StatementKind, tuple[str, str]] = {
    StatementKind.COPY: (
        "COPY FROM STDIN is not supported on this cluster",
        "write with INSERT; COPY ... TO STDOUT is supported",
    ),
    StatementKind.CURSOR: (
        "cursors (DECLARE, FETCH, MOVE, CLOSE) are not supported on this cluster",
        "use the extended protocol's row limit (a fetch size in the driver) or a plain SELECT",
    ),
    StatementKind.LISTEN: (
        "LISTEN and NOTIFY are not supported on this cluster",
        "they need a cluster whose engine speaks PostgreSQL; poll with SELECT instead",
    ),
    StatementKind.OTHER: ("LOCK is not supported on this cluster", "leave it out"),
}
_STREAMS = re.compile(r"\b(?:FROM\s+STDIN|TO\s+STDOUT)\b", re.IGNORECASE)


def is_special(classification: Classification) -> bool:
    """Whether a statement needs a look before it goes to an engine."""
    return classification.kind in SPECIAL or classification.words == ("LOCK",)


def foreign(text: str, classification: Classification) -> NotSupported | None:
    """The error for what only an engine that speaks PostgreSQL can do; None for everything else."""
    kind = classification.kind
    found = _FOREIGN.get(kind)
    if (
        found is None
        or (kind is StatementKind.COPY and not _STREAMS.search(text[-MAX_COMMAND:]))
        or (kind is StatementKind.OTHER and classification.words != ("LOCK",))
    ):
        return None
    return NotSupported(found[0], hint=found[1])


def _set(text: str) -> Command | None:
    match = _SET.fullmatch(text)
    if match is None or _NO_SETTING.fullmatch(text):
        return _no_setting(text)
    name = " ".join(match["name"].split())
    return SetCommand(name.strip('"'), _value(match["value"]), (match["scope"] or "").upper() == "LOCAL")


def _no_setting(text: str) -> Command | None:
    match = _NO_SETTING.fullmatch(text)
    if match is None:
        return None
    what = match["what"].upper()
    if what == "ROLE" or what.endswith("AUTHORIZATION"):
        if match["rest"].strip().rstrip(";").strip().upper() in ("NONE", "DEFAULT"):
            return NoCommand()
        raise PostgresError("the role of a session cannot be changed here", "0A000")
    return NoCommand()


def _value(text: str) -> str | None:
    if text.upper() in ("DEFAULT", "LOCAL"):
        return None
    parts = re.findall(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[^,\s][^,]*", text)
    return ", ".join(_unquoted(part.strip()) for part in parts)


def _unquoted(part: str) -> str:
    if len(part) >= 2 and part[0] == part[-1] == "'":
        return part[1:-1].replace("''", "'")
    if len(part) >= 2 and part[0] == part[-1] == '"' and part != '"$user"':
        return part[1:-1].replace('""', '"')
    return part


def _show(text: str) -> Command | None:
    match = _SHOW.fullmatch(text)
    if match is None:
        return None
    name = " ".join(match["name"].split()).strip('"')
    return ShowCommand("" if name.upper() == "ALL" else _LONG_NAMES.get(name.upper(), name))


def _reset(text: str) -> Command | None:
    if (discard := _DISCARD.fullmatch(text)) is not None:
        return DiscardCommand(discard["what"].upper())
    match = _RESET.fullmatch(text)
    if match is None:
        return None
    name = " ".join(match["name"].split()).strip('"')
    if name.upper() in ("ROLE", "SESSION AUTHORIZATION"):
        return NoCommand()
    return ResetCommand("" if name.upper() == "ALL" else _LONG_NAMES.get(name.upper(), name))


def _deallocate(text: str) -> Command | None:
    match = _DEALLOCATE.fullmatch(text)
    if match is None:
        return None
    name = match["name"]
    if name.upper() == "ALL":
        return DeallocateCommand("")
    return DeallocateCommand(name[1:-1].replace('""', '"') if name.startswith('"') else name.lower())


def _close(text: str) -> Command | None:
    return NoCommand("CLOSE CURSOR ALL") if _CLOSE_ALL.fullmatch(text) else None


def _listen(text: str) -> Command | None:
    return NoCommand("UNLISTEN") if text[:8].upper() == "UNLISTEN" else None


_READERS: dict[StatementKind, Callable[[str], Command | None]] = {
    StatementKind.SET: _set,
    StatementKind.SHOW: _show,
    StatementKind.RESET: _reset,
    StatementKind.DEALLOCATE: _deallocate,
    StatementKind.CURSOR: _close,
    StatementKind.LISTEN: _listen,
}


def text_columns(*names: str) -> tuple[Column, ...]:
    """Columns of type text."""
    return tuple(Column(name, Oid.TEXT) for name in names)


_COUNTED = {"INSERT", "UPDATE", "DELETE", "MERGE", "SELECT", "MOVE", "FETCH", "COPY"}


def done_tag(tag: str, rows: int | None) -> str:
    """The CommandComplete of a statement without a result set."""
    if tag == "INSERT":
        return f"INSERT 0 {rows or 0}"
    return f"{tag} {rows or 0}" if tag in _COUNTED else tag


def rows_tag(classification: Classification, rows: int) -> str:
    """The CommandComplete of a statement that gave rows."""
    kind, words = classification.kind, classification.words
    if kind is StatementKind.WRITE and words:
        return done_tag(words[0], rows)
    if kind in (StatementKind.EXPLAIN, StatementKind.SHOW) and words:
        return words[0]
    if kind is StatementKind.CURSOR and words[:1] == ("FETCH",):
        return f"FETCH {rows}"
    return f"SELECT {rows}"
