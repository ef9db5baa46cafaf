"""One statement into another dialect: the part that needs sqlglot. A pure function of its arguments, run in
this process for small statements and in a helper process for large ones."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError, UnsupportedError

from queryflux.sql.lexer import tokens
from queryflux.sql.naming import PARAMETER_PREFIX, mysql_names, postgres_names
from queryflux.sql.pairs import MYSQL_FAMILY, fixes_for

# It would log statements of users; what it has to say is in the outcome.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

_EXPLAIN = re.compile(
    r"\s*explain\s*(?:\(\s*(?P<options>(?:type|format|analyze|verbose|costs|buffers|timing|summary|settings|wal"
    r"|memory|serialize|generic_plan)\b[\w\s,]*)\)\s*|(?<=\s)(?P<analyze>analyze\s+)?(?:verbose\s+)?)"
    r"(?=select|with|insert|update|delete|values|\()",
    re.I,
)
_ANALYZED = re.compile(r"\banalyze\b(?!\s+(?:false|off|0)\b)", re.I)
_PLACEHOLDER_NAME = re.compile(PARAMETER_PREFIX + "[0-9]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Outcome:
    """``sql`` is None when the statement could not be translated; ``message`` and ``position`` say why and
    where, ``unsupported`` that the target lacks something rather than that the text does not parse."""

    sql: str | None
    has_tables: bool = False
    message: str = ""
    position: int | None = None
    unsupported: bool = False


def transpile(text: str, source: str, target: str, strict: bool) -> Outcome:
    """Translate one statement. Raises nothing."""
    prefix = ""
    explained = _EXPLAIN.match(text)
    if explained:
        runs = explained["analyze"] or _ANALYZED.search(explained["options"] or "")
        prefix = "EXPLAIN ANALYZE " if runs else "EXPLAIN "
    start = explained.end() if explained else 0
    body, shifts = _set_placeholders_apart(text[start:], source)
    try:
        outcome = _transpile(body, source, target, strict)
    except ParseError as error:
        outcome = Outcome(None, message=_first_message(error), position=_position(body, error.errors))
    except TokenError:
        outcome = Outcome(
            None, message="a string, name or comment is not closed", position=_unclosed(body, source)
        )
    except UnsupportedError as error:
        outcome = Outcome(None, message=_ANSI.sub("", str(error)), unsupported=True)
    except RecursionError:
        outcome = Outcome(None, message="the statement is nested too deeply")
    except Exception as error:
        # The parser meets any text there is: a fault of its own must not fail what the engine may take.
        outcome = Outcome(None, message=f"the statement cannot be read ({type(error).__name__})")
    if outcome.sql is None:
        if outcome.position is None:
            return outcome
        position = start + _shifted_back(outcome.position, shifts)
        return Outcome(None, message=outcome.message, position=position, unsupported=outcome.unsupported)
    return Outcome(prefix + outcome.sql, outcome.has_tables)


def _transpile(text: str, source: str, target: str, strict: bool) -> Outcome:
    trees = [tree for tree in sqlglot.parse(text, read=source) if tree is not None]
    statements = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    if len(statements) != 1:
        found = "no statement" if not statements else f"{len(statements)} statements"
        return Outcome(None, message=f"one statement is translated at a time; this text holds {found}")
    root = statements[0]
    if isinstance(root, exp.Command) or root.find(exp.Command):
        return Outcome(
            None, message=f"{root.name.upper() or 'this'} statements are not translated", position=0
        )
    if isinstance(root, exp.Alias | exp.Condition) and not isinstance(root, exp.Query):
        return Outcome(None, message="this is not a statement that the parser knows", position=0)
    has_tables = root.find(exp.Table) is not None
    if source in MYSQL_FAMILY:
        mysql_names(root, _PLACEHOLDER_NAME.sub("?", text))
    elif source == "postgres":
        postgres_names(root, text)
    for fix in fixes_for(source, target):
        root = fix(root)
    level = ErrorLevel.RAISE if strict else ErrorLevel.IGNORE
    return Outcome(root.sql(dialect=target, unsupported_level=level, comments=True), has_tables)


def _set_placeholders_apart(text: str, dialect: str) -> tuple[str, list[tuple[int, int]]]:
    """``?`` as numbered columns, which parse everywhere and keep their order, and a space after ``$n``, since
    sqlglot takes ``$1,$2`` for the beginning of a dollar quote; and where lengths changed."""
    if "$" not in text and ("?" not in text or dialect == "postgres"):
        return text, []
    parts: list[str] = []
    shifts: list[tuple[int, int]] = []
    length = number = 0
    for kind, start, stop in tokens(text, dialect):
        part = text[start:stop]
        if kind == "parameter":
            if part == "?" and dialect != "postgres":
                number += 1
                part = f"{PARAMETER_PREFIX}{number}"
            elif part[0] == "$":
                part += " "
            if len(part) > stop - start:
                shifts.append((length, len(part) - (stop - start)))
        parts.append(part)
        length += len(part)
    return "".join(parts), shifts


def _shifted_back(position: int, shifts: Iterable[tuple[int, int]]) -> int:
    return position - sum(added for offset, added in shifts if offset < position)


def _first_message(error: ParseError) -> str:
    description = error.errors[0].get("description") if error.errors else ""
    return _ANSI.sub("", str(description or error)).partition(" for <class")[0]


def _position(text: str, errors: list[dict[str, object]]) -> int | None:
    """The 0-based offset of the token that sqlglot names by line and last column, both from 1."""
    if not errors or not isinstance(errors[0].get("line"), int):
        return None
    line, column = errors[0]["line"], errors[0]["col"]
    assert isinstance(line, int)
    assert isinstance(column, int)
    lines = text.splitlines(keepends=True)
    before = sum(map(len, lines[: line - 1]))
    return max(0, min(before + column - len(str(errors[0].get("highlight") or " ")), len(text)))


def _unclosed(text: str, dialect: str) -> int:
    """Where the token begins that runs to the end of the text."""
    last = 0
    for _, start, _ in tokens(text, dialect):
        last = start
    return last
