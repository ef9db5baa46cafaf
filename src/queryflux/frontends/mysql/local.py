"""What a statement about the connection itself means, read once and kept by its text.

SET, USE, KILL, SHOW of variables, warnings and the like, and SELECT of nothing but variables and functions of
the connection. ``read_local`` gives None for everything else, which is an engine's business.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from queryflux.frontends.mysql.expressions import (
    Expression,
    Literal,
    NotLocal,
    Reader,
    SystemVariable,
    UserVariable,
    about_connection,
    system_variable,
    unquote,
    user_name,
)
from queryflux.pipeline.face import StatementKind
from queryflux.wire.mysql.errors import NEEDS_PRIVILEGE, NOT_SUPPORTED, ServerError

LONGEST = 4096
"""Longer texts are not read; none of these statements is."""
_KEPT = 512


@dataclass(frozen=True, slots=True)
class Default:
    """``SET name = DEFAULT``."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``target = value`` in SET."""

    target: SystemVariable | UserVariable
    value: Expression | Default


@dataclass(frozen=True, slots=True)
class SetVariables:
    """SET; SET NAMES and SET TRANSACTION are assignments too."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class SelectItems:
    """SELECT of expressions about the connection: column names, expressions, and whether LIMIT leaves the
    row."""

    names: tuple[str, ...]
    expressions: tuple[Expression, ...]
    empty: bool = False


@dataclass(frozen=True, slots=True)
class UseDatabase:
    """USE."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowDiagnostics:
    """SHOW WARNINGS, SHOW ERRORS, and their COUNT(*)."""

    errors_only: bool = False
    count: bool = False


@dataclass(frozen=True, slots=True)
class NameFilter:
    """LIKE and WHERE of SHOW VARIABLES: names in lower case, and LIKE patterns."""

    exact: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether one of them fits the whole of ``name``, in any case."""
        name = name.lower()
        return name in self.exact or any(like(pattern, name) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class ShowVariables:
    """SHOW VARIABLES and SHOW STATUS; without ``only`` all of them."""

    status: bool = False
    globally: bool = False
    only: NameFilter | None = None


@dataclass(frozen=True, slots=True)
class ShowProcesses:
    """SHOW PROCESSLIST."""


@dataclass(frozen=True, slots=True)
class ShowCharacterSets:
    """SHOW CHARACTER SET, SHOW COLLATION."""

    collations: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL QUERY and KILL [CONNECTION]."""

    target: Expression
    query_only: bool


Local = (
    SetVariables
    | SelectItems
    | UseDatabase
    | ShowDiagnostics
    | ShowVariables
    | ShowProcesses
    | ShowCharacterSets
    | Kill
)

_HINT = re.compile(
    r"@|\b(?:database|schema|(?:current_|session_|system_)?user|connection_id|version|row_count|found_rows"
    r"|last_insert_id)\b",
    re.IGNORECASE,
)


def read_local(text: str, kind: StatementKind) -> Local | None:
    """The meaning of ``text`` if it is about the connection. Raises ServerError for what is understood and
    refused, such as SET GLOBAL."""
    if kind not in _READERS or len(text) > LONGEST:
        return None
    if kind is StatementKind.QUERY and _HINT.search(text) is None:
        return None
    return _read(text, kind)


@lru_cache(maxsize=_KEPT)
def _read(text: str, kind: StatementKind) -> Local | None:
    try:
        reader = Reader(text)
        found = _READERS[kind](reader)
        reader.finish()
    except NotLocal:
        return None
    return found


def _select(reader: Reader) -> SelectItems:
    reader.expect("SELECT")
    names: list[str] = []
    expressions: list[Expression] = []
    while not names or reader.accept(","):
        first = reader.peek()
        if first is None:
            raise NotLocal
        expression = reader.expression()
        name = _alias(reader)
        if name is None:
            following = reader.peek()
            end = following.start if following is not None else len(reader.text)
            name = reader.text[first.start : end].rstrip("; \t\r\n*/")
        names.append(name)
        expressions.append(expression)
    if reader.accept("FROM"):
        reader.expect("DUAL")
    empty = False
    if reader.accept("LIMIT"):
        limit = reader.expression()
        empty = limit == Literal(0)
    if not any(map(about_connection, expressions)):
        raise NotLocal
    return SelectItems(tuple(names), tuple(expressions), empty)


def _alias(reader: Reader) -> str | None:
    stated = bool(reader.accept("AS"))
    token = reader.peek()
    if token is None or token.kind not in ("word", "string", "quoted"):
        if stated:
            raise NotLocal
        return None
    if not stated and token.text.upper() in ("FROM", "LIMIT"):
        return None
    reader.next()
    return token.text if token.kind == "word" else unquote(token.text)


def _set(reader: Reader) -> SetVariables:
    reader.expect("SET")
    try:
        assignments = _assignments(reader)
        reader.finish()
    except NotLocal:
        raise ServerError(
            NOT_SUPPORTED,
            f"SET takes only literals, variables and functions of the connection: {reader.text[:400]}",
            hint="no engine is asked for the values of variables",
        ) from None
    return SetVariables(assignments)


def _assignments(reader: Reader) -> tuple[Assignment, ...]:
    found: list[Assignment] = []
    while not found or reader.accept(","):
        scope = reader.accept("SESSION", "LOCAL", "GLOBAL", "PERSIST", "PERSIST_ONLY")
        if reader.accept("TRANSACTION"):
            _only_session(scope)
            return (*found, *_transaction(reader))
        if reader.accept("PASSWORD", "ROLE", "DEFAULT", "RESOURCE"):
            raise ServerError(NEEDS_PRIVILEGE, "users and roles are those of the server's configuration")
        if not scope and reader.accept("NAMES"):
            found += _set_names(reader)
        elif not scope and reader.accept("CHARACTER", "CHARSET"):
            reader.accept("SET")
            found += _character_set(_name_or_string(reader))
        else:
            found.append(_assignment(reader, scope))
    return tuple(found)


def _assignment(reader: Reader, scope: str) -> Assignment:
    token = reader.next()
    target: SystemVariable | UserVariable
    if token.kind == "user" and not scope:
        target = UserVariable(user_name(token))
    elif token.kind == "system" and not scope:
        target = system_variable(token)
        _only_session(token.text[2:].rpartition(".")[0].strip().upper())
    elif token.kind in ("word", "quoted"):
        _only_session(scope)
        name = unquote(token.text) if token.kind == "quoted" else token.text
        while reader.accept("."):  # a component's variable, or an agent's dotted key
            name += "." + reader.name()
        target = SystemVariable(name.lower(), False)
    else:
        raise NotLocal
    reader.expect("=", ":=")
    if reader.accept("DEFAULT"):
        return Assignment(target, Default())
    return Assignment(target, reader.expression())


def _only_session(scope: str) -> None:
    if scope in ("GLOBAL", "PERSIST", "PERSIST_ONLY"):
        raise ServerError(
            NEEDS_PRIVILEGE,
            "Access denied; you need (at least one of) the SUPER or SYSTEM_VARIABLES_ADMIN privilege(s) "
            "for this operation",
            hint="only session variables can be set here",
        )


def _set_names(reader: Reader) -> list[Assignment]:
    found = _character_set(_name_or_string(reader))
    if reader.accept("COLLATE"):
        collation = _name_or_string(reader)
        value = collation if isinstance(collation, Default) else Literal(collation)
        found.append(Assignment(SystemVariable("collation_connection", False), value))
    return found


def _name_or_string(reader: Reader) -> str | Default:
    token = reader.peek()
    if token is not None and token.kind == "string":
        return reader.string()
    if reader.accept("DEFAULT"):
        return Default()
    return reader.name()


def _character_set(name: str | Default) -> list[Assignment]:
    value = name if isinstance(name, Default) else Literal(name)
    variables = ("character_set_client", "character_set_connection", "character_set_results")
    return [Assignment(SystemVariable(item, False), value) for item in variables]


def _transaction(reader: Reader) -> list[Assignment]:
    assignments: list[Assignment] = []
    while not assignments or reader.accept(","):
        if reader.accept("ISOLATION"):
            reader.expect("LEVEL")
            level = reader.expect("READ", "REPEATABLE", "SERIALIZABLE")
            if level == "READ":
                level += "-" + reader.expect("COMMITTED", "UNCOMMITTED")
            elif level == "REPEATABLE":
                level += "-" + reader.expect("READ")
            name, value = "transaction_isolation", level
        else:
            reader.expect("READ")
            name, value = "transaction_read_only", str(int(reader.expect("ONLY", "WRITE") == "ONLY"))
        assignments.append(Assignment(SystemVariable(name, False), Literal(value)))
    return assignments


def _use(reader: Reader) -> UseDatabase:
    reader.expect("USE")
    return UseDatabase(reader.name())


def _kill(reader: Reader) -> Kill:
    reader.expect("KILL")
    query_only = reader.accept("QUERY", "CONNECTION") == "QUERY"
    return Kill(reader.expression(), query_only)


def _show(reader: Reader) -> Local:
    reader.expect("SHOW")
    if reader.accept("COUNT"):
        for mark in "(*)":
            reader.expect(mark)
        return ShowDiagnostics(reader.expect("WARNINGS", "ERRORS") == "ERRORS", count=True)
    full = reader.accept("FULL")
    scope = reader.accept("SESSION", "GLOBAL", "LOCAL")
    what = reader.expect(
        "WARNINGS", "ERRORS", "VARIABLES", "STATUS", "PROCESSLIST", "CHARACTER", "CHARSET", "COLLATION"
    )
    if what in ("WARNINGS", "ERRORS"):
        if reader.accept("LIMIT"):
            reader.expression()
            if reader.accept(","):
                reader.expression()
        return ShowDiagnostics(what == "ERRORS")
    if what in ("VARIABLES", "STATUS"):
        return ShowVariables(what == "STATUS", scope == "GLOBAL", _name_filter(reader))
    if what == "PROCESSLIST":
        return ShowProcesses()
    if full or scope:
        raise NotLocal
    if what == "CHARACTER":
        reader.expect("SET")
    while reader.peek() is not None and not reader.accept(";"):
        reader.next()  # LIKE and WHERE: the list is so short that it is given whole
    return ShowCharacterSets(what == "COLLATION")


def _name_filter(reader: Reader) -> NameFilter | None:
    if reader.accept("LIKE"):
        return NameFilter(patterns=(reader.string().lower(),))
    if not reader.accept("WHERE"):
        return None
    exact: set[str] = set()
    patterns: list[str] = []
    while not (exact or patterns) or reader.accept("OR"):
        if reader.name().lower() != "variable_name":
            raise NotLocal
        operator = reader.expect("=", "LIKE", "IN")
        if operator == "LIKE":
            patterns.append(reader.string().lower())
        elif operator == "=":
            exact.add(reader.string().lower())
        else:
            reader.expect("(")
            exact.add(reader.string().lower())
            while reader.accept(","):
                exact.add(reader.string().lower())
            reader.expect(")")
    return NameFilter(frozenset(exact), tuple(patterns))


def like(pattern: str, name: str) -> bool:
    """LIKE, in time of the product of both lengths: after a mismatch only the last ``%`` is tried again."""
    at = start = 0
    retry = resume = -1
    while start < len(name):
        escaped = pattern[at : at + 1] == "\\" and at + 1 < len(pattern)
        wanted = pattern[at + escaped : at + escaped + 1]
        if wanted == "%" and not escaped:
            retry, resume = at, start
            at += 1
        elif wanted and (wanted == name[start] or (wanted == "_" and not escaped)):
            at += 1 + escaped
            start += 1
        elif retry >= 0:
            at, resume = retry + 1, resume + 1
            start = resume
        else:
            return False
    return not pattern[at:].strip("%")


_READERS: dict[StatementKind, Callable[[Reader], Local]] = {
    StatementKind.QUERY: _select,
    StatementKind.SET: _set,
    StatementKind.USE: _use,
    StatementKind.KILL: _kill,
    StatementKind.SHOW: _show,
}
