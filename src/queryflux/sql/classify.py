"""The kind of a statement, from its leading words; no parser."""

from queryflux.sql.kinds import Classification, StatementKind
from queryflux.sql.lexer import blank_end, tokens
from queryflux.sql.outline import landmarks, outline, top_level, writing_cte
from queryflux.sql.textcache import TextCache

_KINDS = {
    StatementKind.QUERY: "SELECT VALUES TABLE FROM PIVOT UNPIVOT",
    StatementKind.WRITE: "INSERT UPDATE DELETE MERGE REPLACE UPSERT",
    StatementKind.DDL: "CREATE ALTER DROP TRUNCATE COMMENT GRANT REVOKE RENAME REINDEX CLUSTER REFRESH "
    "VACUUM ANALYZE OPTIMIZE IMPORT REASSIGN SECURITY INSTALL LOAD ATTACH DETACH",
    StatementKind.EXPLAIN: "EXPLAIN",
    StatementKind.SHOW: "SHOW SUMMARIZE",
    StatementKind.DESCRIBE: "DESCRIBE DESC",
    StatementKind.SET: "SET PRAGMA",
    StatementKind.RESET: "RESET DISCARD",
    StatementKind.USE: "USE",
    StatementKind.BEGIN: "BEGIN START",
    StatementKind.COMMIT: "COMMIT END",
    StatementKind.ROLLBACK: "ROLLBACK ABORT",
    StatementKind.SAVEPOINT: "SAVEPOINT RELEASE",
    StatementKind.PREPARE: "PREPARE",
    StatementKind.EXECUTE: "EXECUTE",
    StatementKind.DEALLOCATE: "DEALLOCATE",
    StatementKind.COPY: "COPY",
    StatementKind.CALL: "CALL DO",
    StatementKind.KILL: "KILL",
    StatementKind.LISTEN: "LISTEN UNLISTEN NOTIFY",
    StatementKind.CURSOR: "DECLARE FETCH MOVE CLOSE",
}
_BY_WORD = {word: kind for kind, words in _KINDS.items() for word in words.split()}
_WRITING = frozenset(
    {StatementKind.WRITE, StatementKind.DDL, StatementKind.CALL, StatementKind.EXECUTE, StatementKind.OTHER}
)
_BODIES = "SELECT|VALUES|TABLE|INSERT|UPDATE|DELETE|MERGE"
_QUERY_WORDS = frozenset(_BODIES.split("|"))
_MYSQL_FAMILY = frozenset({"mysql", "starrocks", "doris"})
# PostgreSQL's command tags leave out what stands between the verb and the kind of object.
_BETWEEN_WORDS = """
OR REPLACE GLOBAL LOCAL TEMP TEMPORARY UNLOGGED UNIQUE RECURSIVE TRUSTED PROCEDURAL CONSTRAINT DEFAULT
TRANSIENT SECRET PERSISTENT
"""
_BETWEEN = frozenset(_BETWEEN_WORDS.split())
_LONG_OBJECTS = {
    "MATERIALIZED": ("VIEW",),
    "FOREIGN": ("TABLE", "DATA", "WRAPPER"),
    "EVENT": ("TRIGGER",),
    "TEXT": ("SEARCH", "CONFIGURATION", "DICTIONARY", "PARSER", "TEMPLATE"),
    "USER": ("MAPPING",),
    "ACCESS": ("METHOD",),
    "OPERATOR": ("CLASS", "FAMILY"),
    "LARGE": ("OBJECT",),
}
_SECOND_WORDS = {
    "START": ("TRANSACTION",),
    "DISCARD": ("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY"),
    "DEALLOCATE": ("ALL",),
    "TRUNCATE": ("TABLE",),
    "REFRESH": ("MATERIALIZED",),
}
_TAGS = {
    ("END",): ("COMMIT",),
    ("ABORT",): ("ROLLBACK",),
    ("START",): ("START", "TRANSACTION"),
    ("TRUNCATE",): ("TRUNCATE", "TABLE"),
    ("DECLARE",): ("DECLARE", "CURSOR"),
    ("CLOSE",): ("CLOSE", "CURSOR"),
    ("REFRESH",): ("REFRESH", "MATERIALIZED", "VIEW"),
    ("REFRESH", "MATERIALIZED"): ("REFRESH", "MATERIALIZED", "VIEW"),
}
_CACHED_BYTES = 4 << 20
_LONGEST_KEPT = 16 << 10
_cache: TextCache[Classification] = TextCache(_CACHED_BYTES)
_LARGE_REMEMBERED = 64
_large: dict[tuple[int, int, str], Classification] = {}
"""Of large texts only the hash (64 bits, keyed by the process) and length are kept."""
_EMPTY = Classification(StatementKind.EMPTY, ())
_SELECTS = ("SELECT ", "select ", "SELECT\n", "select\n")
_A_SELECT = Classification(StatementKind.QUERY, ("SELECT",))


def classify(text: str, dialect: str) -> Classification:
    """The kind of the (first) statement of ``text``. Comments before it are passed over; what MySQL runs in
    ``/*! */`` counts. Cached by text, in about 4 MiB."""
    if len(text) > _LONGEST_KEPT:
        return _classify_large(text, dialect)
    if text[:7] in _SELECTS and "into" not in text.lower():
        return _A_SELECT  # by far the most, and a text with values in it is rarely seen twice
    key = (text, dialect)
    known = _cache.get(key)
    if known is None:
        known = _classify(text, dialect, 0)
        _cache.put(key, known, text)
    return known


def _classify_large(text: str, dialect: str) -> Classification:
    key = (hash(text), len(text), dialect)
    known = _large.get(key)
    if known is None:
        known = _classify(text, dialect, 0)
        if len(_large) >= _LARGE_REMEMBERED:
            _large.clear()
        _large[key] = known
    return known


class _Words:
    """The significant tokens of a text, drawn one by one: words in upper case, the rest as they are."""

    def __init__(self, text: str, dialect: str, start: int) -> None:
        self._text = text
        self._tokens = tokens(text, dialect, start)
        self.offset = start

    def next(self) -> str:
        """The next token; empty at the end. A quoted identifier gives its first character."""
        for kind, start, stop in self._tokens:
            if kind in ("space", "comment"):
                continue
            self.offset = start
            if kind == "word":
                return self._text[start:stop].upper()
            return self._text[start] if kind in ("quoted", "string") else self._text[start:stop]
        self.offset = len(self._text)
        return ""


def _classify(text: str, dialect: str, start: int) -> Classification:
    words = _Words(text, dialect, blank_end(text, dialect, start, "("))
    first = words.next()
    if not first or first == ";":
        return _EMPTY
    special = _SPECIAL.get(first)
    if special is not None:
        return special(text, dialect, words, first)
    kind = _BY_WORD.get(first, StatementKind.OTHER)
    tag = _tag(first, words)
    return Classification(kind, tag, kind in _WRITING)


def _tag(first: str, words: _Words) -> tuple[str, ...]:
    follow = _SECOND_WORDS.get(first)
    if follow:
        second = words.next()
        tag = (first, second) if second in follow else (first,)
    else:
        tag = (first,)
    return _TAGS.get(tag, tag)


def _definition(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """CREATE, ALTER and DROP: the tag names the kind of object."""
    word = words.next()
    while word in _BETWEEN:
        if (following := words.next()) == "PRIVILEGES":
            return Classification(StatementKind.DDL, (first, word, following), True)
        word = following
    tag = [first, word] if word.isidentifier() else [first]
    longer = _LONG_OBJECTS.get(word, ())
    while longer and (word := words.next()) in longer:
        tag.append(word)
    return Classification(StatementKind.DDL, tuple(tag), True)


def _with(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """WITH: the statement after the common table expressions says what it is; one of them that changes data
    (PostgreSQL) makes it a write all the same."""
    whole = outline(text, dialect, words.offset)
    changes = writing_cte(whole)
    top = top_level(whole)
    word = next(landmarks(top, _BODIES, after_with=True), "SELECT")
    if word == "SELECT" and not changes:
        return _into(top, dialect)
    kind = _BY_WORD[word]
    writes = changes or kind is StatementKind.WRITE
    return Classification(StatementKind.WRITE if writes else kind, (word,), writes)


def _select(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """SELECT INTO makes a table (PostgreSQL) or writes a file or variable (MySQL)."""
    if "into" not in text.lower():
        return _A_SELECT
    return _into(top_level(outline(text, dialect, words.offset)), dialect)


def _into(top: str, dialect: str) -> Classification:
    if "INTO" not in landmarks(top, "INTO"):
        return _A_SELECT
    kind = StatementKind.WRITE if dialect in _MYSQL_FAMILY else StatementKind.DDL
    return Classification(kind, ("SELECT",), True)


def _explain(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """EXPLAIN of a statement, or (MySQL) of a table, which describes it."""
    word, runs = words.next(), False
    while word in ("ANALYZE", "VERBOSE", "EXTENDED", "PARTITIONS", "FORMAT", "LOGICAL", "TYPE"):
        runs = runs or word == "ANALYZE"
        word = words.next()
        if word == "=":
            words.next()
            word = words.next()
    if word == "(":
        option = words.next()
        if option in _QUERY_WORDS or option in ("(", "WITH"):
            return Classification(StatementKind.EXPLAIN, ("EXPLAIN",), False)
        while option not in (")", ""):
            previous, option = option, words.next()
            if previous == "ANALYZE":
                runs = option not in ("FALSE", "OFF", "0")
        word = words.next()
    if word not in _BY_WORD and word not in _SPECIAL:
        return Classification(StatementKind.DESCRIBE, (first,))
    if not runs:
        return Classification(StatementKind.EXPLAIN, ("EXPLAIN",))
    return Classification(StatementKind.EXPLAIN, ("EXPLAIN",), _classify(text, dialect, words.offset).writes)


def _describe(text: str, dialect: str, words: _Words, first: str) -> Classification:
    if dialect in _MYSQL_FAMILY:
        return _explain(text, dialect, words, first)
    second = words.next()
    return Classification(
        StatementKind.DESCRIBE, (first, second) if second in ("INPUT", "OUTPUT") else (first,)
    )


def _set(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """SET and RESET; Trino's tags name SESSION, ROLE and so on."""
    kind = _BY_WORD[first]
    second = words.next()
    named = dialect == "trino" and second in ("SESSION", "ROLE", "PATH", "TIME")
    return Classification(kind, (first, second) if named else (first,))


def _copy(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """COPY ... FROM writes, COPY ... TO reads."""
    top = top_level(outline(text, dialect, words.offset))
    direction = next(landmarks(top, "FROM|TO"), "FROM")
    return Classification(StatementKind.COPY, (first,), direction == "FROM")


def _rollback(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """ROLLBACK TO goes back to a savepoint and ends no transaction."""
    second = words.next()
    if second in ("WORK", "TRANSACTION"):
        second = words.next()
    if second == "TO":
        return Classification(StatementKind.SAVEPOINT, ("ROLLBACK",))
    if second == "PREPARED":
        return Classification(StatementKind.OTHER, (first, second), True)
    return Classification(StatementKind.ROLLBACK, ("ROLLBACK",))


def _prepare(text: str, dialect: str, words: _Words, first: str) -> Classification:
    """PREPARE TRANSACTION and COMMIT PREPARED belong to two-phase commit."""
    second = words.next()
    if (first, second) in (("PREPARE", "TRANSACTION"), ("COMMIT", "PREPARED")):
        return Classification(StatementKind.OTHER, (first, second), True)
    return Classification(_BY_WORD[first], (first,))


_SPECIAL = {
    "WITH": _with,
    "SELECT": _select,
    "CREATE": _definition,
    "ALTER": _definition,
    "DROP": _definition,
    "EXPLAIN": _explain,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "SET": _set,
    "RESET": _set,
    "COPY": _copy,
    "ROLLBACK": _rollback,
    "PREPARE": _prepare,
    "COMMIT": _prepare,
}
