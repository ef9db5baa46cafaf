"""Patterns: LIKE and its escapes, SIMILAR TO, regular expressions and what they return."""

import re

from sqlglot import exp

from queryflux.sql.rewrites import Calls, Rules, call, number, string, text_of, when

_GROUP = re.compile(r"\\.|\[\]?[^]]*\]|(\((?!\?))", re.S)
_SIMILAR = {"%": ".*", "_": ".", "(": "(?:", ".": r"\.", "^": r"\^", "$": r"\$"}
_NEEDLESS_ESCAPE = re.compile(r"(\\[%_\\])|\\", re.S)
_BACK_REFERENCE = re.compile(r"\\([0-9&\\])|\$")
_DOLLAR_REFERENCE = re.compile(r"\$([0-9])|\\(.)", re.S)


def groups_in(pattern: str) -> int:
    """How many capturing groups a regular expression has."""
    return sum(1 for found in _GROUP.finditer(pattern) if found.group(1))


def _escaped(node: exp.Expr) -> exp.Expr | None:
    """A backslash escapes in LIKE on PostgreSQL and MySQL; on DuckDB and Trino if the statement says so."""
    pattern = node.expression
    if isinstance(node.parent, exp.Escape) or isinstance(pattern.unnest(), exp.Any | exp.All | exp.Tuple):
        return None
    if isinstance(pattern, exp.Literal) and "\\" not in pattern.this:
        return None
    copied = node.copy()
    if isinstance(pattern, exp.Literal):
        # Trino refuses an escape before anything else.
        copied.set("expression", string(_NEEDLESS_ESCAPE.sub(r"\1", pattern.this)))
    return exp.Escape(this=copied, expression=string("\\"))


def _unescaped(node: exp.Expr) -> exp.Expr | None:
    """A backslash is itself in Trino's patterns."""
    pattern = text_of(node.expression)
    if isinstance(node.parent, exp.Escape) or pattern is None or "\\" not in pattern:
        return None
    copied = node.copy()
    copied.set("expression", string(pattern.replace("\\", "\\\\")))
    return copied


ESCAPED_LIKES: Rules = {exp.Like: _escaped, exp.ILike: _escaped}
UNESCAPED_LIKES: Rules = {exp.Like: _unescaped}


def similar_pattern(pattern: str, escape: str = "\\") -> str:
    """SIMILAR TO's pattern as a regular expression that the whole text has to match."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        letter = pattern[position]
        if letter == escape and position + 1 < len(pattern):
            position += 1
            parts.append(re.escape(pattern[position]))
        elif letter == "[" and (end := pattern.find("]", position + 2)) > 0:
            parts.append(pattern[position : end + 1].replace("\\", "\\\\"))
            position = end
        else:
            parts.append(_SIMILAR.get(letter, letter))
        position += 1
    return "".join(parts)


def _similar(node: exp.Expr) -> tuple[exp.Expr, str] | None:
    """The text that is compared, and the regular expression."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        escape = text_of(node.expression) or ""
        node = node.this
    elif isinstance(node.parent, exp.Escape):
        return None
    pattern = text_of(node.expression)
    if not isinstance(node, exp.SimilarTo) or pattern is None:
        return None
    return node.this, similar_pattern(pattern, escape)


def _similar_duckdb(node: exp.Expr) -> exp.Expr | None:
    found = _similar(node)
    return call("REGEXP_FULL_MATCH", found[0], string(found[1]), string("s")) if found else None


def _similar_trino(node: exp.Expr) -> exp.Expr | None:
    found = _similar(node)
    return call("REGEXP_LIKE", found[0], string(rf"(?s)\A(?:{found[1]})\z")) if found else None


def _match(arguments: list[exp.Expr]) -> exp.Expr | None:
    """REGEXP_MATCH gives an array of the groups, or of the whole."""
    pattern = text_of(arguments[1]) if len(arguments) > 1 else None
    if pattern is None:
        return None
    text, flags = arguments[0], arguments[2:]
    count = groups_in(pattern)
    parts = [
        call("REGEXP_EXTRACT", text, arguments[1], number(n), *flags)
        for n in (range(1, count + 1) if count else (0,))
    ]
    return when(call("REGEXP_MATCHES", text, arguments[1], *flags), exp.Array(expressions=parts))


def _matches(arguments: list[exp.Expr]) -> exp.Expr:
    """REGEXP_MATCHES gives a row for the match, with 'g' for each of them; DuckDB's is a truth value."""
    pattern = text_of(arguments[1]) if len(arguments) > 1 else None
    flags = text_of(arguments[2]) if len(arguments) > 2 else ""
    if pattern is None or flags is None:
        return call("REGEXP_MATCH", *arguments)  # which DuckDB does not know
    others = [string(flags.replace("g", ""))] if flags.replace("g", "") else []
    if "g" not in flags:
        one = _match(arguments[:2] + others)
        assert one is not None
        is_there = exp.Not(this=exp.Is(this=one.copy(), expression=exp.Null()))
        return call("UNNEST", when(is_there, exp.Array(expressions=[one]), exp.Array(expressions=[])))
    count = groups_in(pattern)
    found = [
        call("REGEXP_EXTRACT_ALL", *arguments[:2], number(n), *others)
        for n in (range(1, count + 1) if count else (0,))
    ]
    row = exp.Array(
        expressions=[exp.Bracket(this=each.copy(), expressions=[exp.column("i")]) for each in found]
    )
    each_row = exp.Lambda(this=row, expressions=[exp.to_identifier("i")])
    return call(
        "UNNEST", call("LIST_TRANSFORM", call("RANGE", number(1), _length_plus_one(found[0])), each_row)
    )


def _length_plus_one(items: exp.Expr) -> exp.Expr:
    return exp.Add(this=call("LEN", items), expression=number(1))


def _match_trino(arguments: list[exp.Expr]) -> exp.Expr | None:
    pattern = text_of(arguments[1]) if len(arguments) > 1 else None
    flags = text_of(arguments[2]) if len(arguments) > 2 else ""
    if pattern is None or flags not in ("", "i"):
        return None
    count = groups_in(pattern)
    written = string(f"(?i){pattern}" if flags else pattern)
    parts = [
        call("REGEXP_EXTRACT", arguments[0], written, number(n))
        for n in (range(1, count + 1) if count else (0,))
    ]
    return when(call("REGEXP_LIKE", arguments[0], written), exp.Array(expressions=parts))


def _replace_trino(node: exp.RegexpReplace) -> exp.Expr | None:
    """PostgreSQL replaces the first match unless told 'g', Trino all; a group is \\1 here and $1 there."""
    pattern, replacement = text_of(node.expression), text_of(node.args.get("replacement"))
    modifiers = node.args.get("modifiers")
    flags = text_of(modifiers) if modifiers is not None else ""
    if pattern is None or replacement is None or flags is None or set(flags) - set("gi"):
        return None
    before = 0 if "g" in flags else 1

    def reference(found: re.Match[str]) -> str:
        letter = found.group(1)
        if letter is None or letter == "\\":
            return "\\$" if letter is None else "\\\\"
        return f"${int(letter) + before}" if letter != "&" else "$0"

    if before and re.search(r"\\[&0]", replacement):
        return None
    written = _BACK_REFERENCE.sub(reference, replacement)
    if before:
        pattern, written = rf"\A((?s:.*?))(?:{pattern})", f"$1{written}"
    start = "(?i)" if "i" in flags else ""
    return call("REGEXP_REPLACE", node.this, string(start + pattern), string(written))


def _dollar_groups(node: exp.RegexpReplace) -> exp.Expr | None:
    """Trino's $1 is \\1 on DuckDB and PostgreSQL."""
    replacement = text_of(node.args.get("replacement"))
    if replacement is None or not _DOLLAR_REFERENCE.search(replacement):
        return None
    copied = node.copy()
    written = _DOLLAR_REFERENCE.sub(
        lambda found: f"\\{found.group(1)}" if found.group(1) else found.group(2).replace("\\", "\\\\"),
        replacement,
    )
    copied.set("replacement", string(written))
    return copied


def _nothing_is_null(node: exp.RegexpExtract) -> exp.Expr | None:
    """Trino extracts NULL where nothing matches, DuckDB an empty text."""
    if isinstance(node.parent, exp.If):
        return None
    return when(call("REGEXP_MATCHES", node.this, node.expression), node.copy())


DUCKDB_FROM_POSTGRES: Rules = {exp.SimilarTo: _similar_duckdb, exp.Escape: _similar_duckdb}
TRINO_FROM_POSTGRES: Rules = {
    exp.SimilarTo: _similar_trino,
    exp.Escape: _similar_trino,
    exp.RegexpReplace: _replace_trino,
}
DOLLAR_GROUPS: Rules = {exp.RegexpReplace: _dollar_groups}
DUCKDB_FROM_TRINO: Rules = {exp.RegexpReplace: _dollar_groups, exp.RegexpExtract: _nothing_is_null}
DUCKDB_CALLS: Calls = {"REGEXP_MATCH": _match, "REGEXP_MATCHES": _matches}
TRINO_CALLS: Calls = {"REGEXP_MATCH": _match_trino}
