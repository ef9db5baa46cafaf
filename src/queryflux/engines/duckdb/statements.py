"""What kind of statement a text is, as far as running it needs to know; kept by text, bounded."""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import duckdb

from queryflux.engines.control import SKIP, spoken
from queryflux.engines.duckdb.tokens import tokens, writing_cte
from queryflux.model.errors import InvalidRequest

CACHED_TEXTS = 1024
CACHED_TEXT_LENGTH = 8192

_WORD = re.compile(SKIP + r"([A-Za-z_]+)", re.S)
_MODIFIERS = {"OR", "REPLACE", "TEMP", "TEMPORARY", "UNIQUE", "PERSISTENT", "LOCAL", "GLOBAL"}
_TWO_WORDS = {"CREATE", "DROP", "ALTER"}
_WORDS_LOOKED_AT = 6


class Effect(Enum):
    """What a statement leaves behind on the cursor that ran it."""

    NONE = "none"
    SESSION = "session"
    """Settings, variables, temporary tables: the client keeps the cursor."""
    LITTER = "litter"
    """Things nobody may find: the cursor is thrown away."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """``rows`` says that it surely gives rows and changes nothing; ``tag`` names it where it gives none."""

    type: str
    tag: str
    rows: bool
    effect: Effect


@dataclass(frozen=True, slots=True)
class Control:
    """BEGIN, COMMIT or ROLLBACK, and what to tell DuckDB, which knows no isolation levels: it has one."""

    tag: str
    sql: str


def control(sql: str) -> Control | None:
    """The transaction control statement that a text is, if it is one."""
    said = spoken(sql)
    if said is None:
        return None
    if said.tag == "BEGIN":
        return Control("BEGIN", "BEGIN TRANSACTION" + (" READ ONLY" if "READ ONLY" in said.modes else ""))
    return Control(said.tag, said.tag)


def words(sql: str, limit: int = _WORDS_LOOKED_AT) -> list[str]:
    """The leading words in upper case, comments aside."""
    found: list[str] = []
    position = 0
    while len(found) < limit and (match := _WORD.match(sql, position)):
        found.append(match[1].upper())
        position = match.end()
    return found


def tag_of(sql: str) -> str:
    """The tag of a statement that gives no rows: ``INSERT``, ``CREATE TABLE``."""
    leading = words(sql)
    if not leading:
        return ""
    if leading[0] not in _TWO_WORDS:
        return leading[0]
    rest = [word for word in leading[1:] if word not in _MODIFIERS]
    return f"{leading[0]} {rest[0]}" if rest else leading[0]


_SESSION_TYPES = {"SET", "VARIABLE_SET", "PREPARE", "PRAGMA", "CALL", "LOAD", "EXECUTE"}


def _effect(kind: str, sql: str) -> Effect:
    if kind == "MULTI":  # PIVOT makes an enum type of its own first
        return Effect.LITTER
    if kind in _SESSION_TYPES:
        return Effect.SESSION
    if kind == "CREATE" and not {"TEMP", "TEMPORARY"}.isdisjoint(words(sql)):
        return Effect.SESSION
    return Effect.NONE


_MAY_WRITE = re.compile(r"\b(?:copy|insert|update|delete|merge)\b", re.I)


def _only_reads(kind: str, sql: str) -> bool:
    return kind != "SELECT" or not _MAY_WRITE.search(sql) or not writing_cte(tokens(sql))


def _parse(sql: str) -> Parsed:
    found = duckdb.extract_statements(sql)
    if len(found) != 1:
        raise InvalidRequest(
            f"one statement at a time, please: the text holds {len(found)}",
            hint="Send the statements one after another.",
        )
    statement = found[0]
    kind = statement.type.name
    expected = {result.name for result in statement.expected_result_type}
    rows = expected == {"QUERY_RESULT"} and _only_reads(kind, sql)
    return Parsed(kind, "" if rows else tag_of(sql), rows, _effect(kind, sql))


class Statements:
    """Parses, and keeps what it found for texts that come again. Used from several threads: a lost race
    parses once more."""

    def __init__(self, check: Callable[[str, str], None] | None = None) -> None:
        """``check`` is given each text and its type once, and raises for what is not allowed."""
        self._check = check
        self._known: OrderedDict[str, Parsed] = OrderedDict()

    def parse(self, sql: str) -> Parsed:
        """Raises duckdb.Error, ValueError (a statement the Python package has no name for), InvalidRequest
        (none, or several), and what ``check`` raises."""
        parsed = self._known.get(sql)
        if parsed is None:
            parsed = _parse(sql)
            if self._check is not None:
                self._check(sql, parsed.type)
            if len(sql) <= CACHED_TEXT_LENGTH:
                self._known[sql] = parsed
                while len(self._known) > CACHED_TEXTS:
                    self._known.popitem(last=False)
        return parsed
