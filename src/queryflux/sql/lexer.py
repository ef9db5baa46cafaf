"""How SQL text is cut into tokens, for everything that must not wait for a parser.

One table of dialect traits and regular expressions built from it. Every expression is linear: strings and
comments that are never closed run to the end of the text instead of failing, and repetitions are possessive.
Sources: PostgreSQL documentation 4.1 (lexical structure), MySQL manual 11.1, 11.2 and 11.7, Trino's grammar.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Token(StrEnum):
    """Kinds of tokens. The values are the group names of the token expression."""

    SPACE = "space"
    COMMENT = "comment"
    STRING = "string"
    QUOTED = "quoted"
    WORD = "word"
    NUMBER = "number"
    PARAMETER = "parameter"
    VARIABLE = "variable"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Traits:
    """What differs between dialects below the grammar."""

    backslashes: bool = False
    backticks: bool = False
    double_quoted_strings: bool = False
    dollar_quotes: bool = False
    nested_comments: bool = False
    hash_comments: bool = False
    dash_needs_space: bool = False
    executable_comments: bool = False


_MYSQL = Traits(
    backslashes=True,
    backticks=True,
    double_quoted_strings=True,
    hash_comments=True,
    dash_needs_space=True,
    executable_comments=True,
)
TRAITS = {
    "postgres": Traits(dollar_quotes=True, nested_comments=True),
    "mysql": _MYSQL,
    "starrocks": _MYSQL,
    "doris": _MYSQL,
    "trino": Traits(),
    "duckdb": Traits(dollar_quotes=True),
    "clickhouse": Traits(backslashes=True, backticks=True, hash_comments=True),
    "snowflake": Traits(backslashes=True, dollar_quotes=True),
    "sqlite": Traits(backticks=True),
    "": Traits(dollar_quotes=True, backticks=True),
}

# Loops are over runs of characters, not over characters: strings of megabytes are passed at memory speed.
_DOUBLED = r"{q}[^{q}]*+(?:{q}{q}[^{q}]*+)*+(?:{q}|\Z)"
_ESCAPED = r"{q}[^{q}\\]*+(?:(?:\\[\s\S]|{q}{q}|\\\Z)[^{q}\\]*+)*+(?:{q}|\Z)"
_TAG = r"[A-Za-z_\x80-\U0010FFFF][A-Za-z0-9_\x80-\U0010FFFF]*"
_LETTER = r"A-Za-z_\x80-\U0010FFFF"
WORD = r"[A-Za-z_\x80-\U0010FFFF][A-Za-z0-9_$\x80-\U0010FFFF]*+"
_NUMBER = r"(?:0[xX][0-9A-Fa-f]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)"
_NESTED_OPEN = re.compile(r"/\*|\*/")


def traits_of(dialect: str) -> Traits:
    """Traits of a dialect by its sqlglot name; plain ANSI ones for a dialect that is not in the table."""
    return TRAITS.get(dialect) or Traits()


def string_pattern(traits: Traits) -> str:
    """Every string literal, prefixes included. Dollar quotes use the group ``tag``."""
    plain = (_ESCAPED if traits.backslashes else _DOUBLED).format(q="'")
    parts = [r"[eE]" + _ESCAPED.format(q="'"), r"(?:[uU]&|[bBxXnN])?" + plain]
    if traits.double_quoted_strings:
        parts.append(_ESCAPED.format(q='"'))
    if traits.dollar_quotes:
        parts.append(rf"\$(?P<tag>(?:{_TAG})?)\$[\s\S]*?(?:\$(?P=tag)\$|\Z)")
    return "(?:" + "|".join(parts) + ")"


def quoted_pattern(traits: Traits) -> str:
    """Every quoted identifier."""
    parts = [] if traits.double_quoted_strings else [r"(?:[uU]&)?" + _DOUBLED.format(q='"')]
    if traits.backticks:
        parts.append(_DOUBLED.format(q="`"))
    return "(?:" + "|".join(parts) + ")"


def comment_pattern(traits: Traits) -> str:
    """Every comment. Of nested ones only those without another inside; ``nested_end`` does the rest."""
    return "(?:" + "|".join(_comments(traits)) + ")"


def _comments(traits: Traits) -> list[str]:
    parts = [r"--(?=[\s\x00-\x1f]|\Z)[^\n]*+" if traits.dash_needs_space else r"--[^\n]*+"]
    if traits.hash_comments:
        parts.append(r"\#[^\n]*+")
    if traits.executable_comments:
        # The server runs what stands in /*! */ and /*!80000 */: only the marks themselves are no SQL.
        parts.append(r"/\*[Mm]?![0-9]*|\*/")
    if traits.nested_comments:
        parts.append(r"/\*[^*/]*+(?:(?:\*(?!/)|/(?!\*))[^*/]*+)*+(?:\*/|\Z)")
    else:
        parts.append(r"/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|\Z)")
    return parts


def nested_end(text: str, start: int) -> int:
    """The offset after the comment that opens at ``start``, other comments inside it counted."""
    depth = 0
    for mark in _NESTED_OPEN.finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def passage_pattern(traits: Traits, stops: str) -> str:
    """Alternatives that, repeated, pass over everything up to one of ``stops`` or a nested comment: words
    and numbers in long runs, strings, names and comments whole."""
    marks = "".join(("'\"", "`" * traits.backticks, "#" * traits.hash_comments, "$" * traits.dollar_quotes))
    run = rf"[^{stops}/\-{marks}]"
    return "|".join((run + "++", opaque_pattern(traits, run + "*+"), r"/(?!\*)", "-", r"\$"))


def opaque_pattern(traits: Traits, then: str = "") -> str:
    """Alternatives for strings, quoted names and comments, each told by its first character so that a search
    for them is fast; ``then`` is a pattern for what may follow a string. A doubled quote looks like a second
    string. Where a name holds ``$``, its rest counts as one."""
    escaped = _ESCAPED.format(q="'")
    parts = _comments(traits)
    if traits.backslashes:
        parts.append(escaped + then)
    else:
        # Of the prefixes only that of E'..' changes where the string ends.
        after_e = rf"(?<=[eE]')(?<![{_LETTER}0-9$][eE]'){escaped[1:]}"
        parts.append(rf"'(?:{after_e}|[^']*+(?:'|\Z){then})")
    parts.append(_ESCAPED.format(q='"') if traits.double_quoted_strings else r'"[^"]*+(?:"|\Z)')
    if traits.backticks:
        parts.append(r"`[^`]*+(?:`|\Z)")
    if traits.dollar_quotes:
        quote = rf"(?P<tag>(?:{_TAG})?)\$[\s\S]*?(?:\$(?P=tag)\$|\Z)"
        parts.append(rf"\$(?:(?<=[{_LETTER}0-9]\$)[{_LETTER}0-9$]*+|{quote})")
    return "|".join(parts)


@cache
def _blank_expression(dialect: str, skipped: str) -> re.Pattern[str]:
    return re.compile(rf"(?:[\s\x00{skipped}]++|{comment_pattern(traits_of(dialect))})*+")


def blank_end(text: str, dialect: str, start: int = 0, skipped: str = "") -> int:
    """The offset after white space, comments and what characters are ``skipped``."""
    match = _blank_expression(dialect, skipped).match
    nests = traits_of(dialect).nested_comments
    while True:
        found = match(text, start)
        assert found is not None
        start = found.end()
        if not nests or not text.startswith("/*", start):
            return start
        start = nested_end(text, start)


@cache
def token_expression(dialect: str) -> re.Pattern[str]:
    """An expression that matches at every offset; the name of its last group is the kind of the token."""
    traits = traits_of(dialect)
    groups = {
        # A string may begin like a word (E'..') and a comment like an operator: the order decides.
        Token.SPACE: r"[\s\x00]++",
        Token.COMMENT: comment_pattern(traits),
        Token.STRING: string_pattern(traits),
        Token.QUOTED: quoted_pattern(traits),
        Token.WORD: WORD,
        Token.NUMBER: _NUMBER,
        Token.PARAMETER: r"\$[0-9]++|\?|(?<![:\w]):[A-Za-z_][A-Za-z0-9_]*+",
        Token.VARIABLE: r"@@?[\w.$]++",
        Token.OPERATOR: r"::|<=|>=|<>|!=|\|\||->>|->|=>|:=|[\s\S]",
    }
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in groups.items()))


def tokens(text: str, dialect: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of each token from ``start`` on; together they cover the text. Takes time and
    memory linear in what the caller draws."""
    match = token_expression(dialect).match
    nests = traits_of(dialect).nested_comments
    end = len(text)
    while start < end:
        found = match(text, start)
        assert found is not None
        kind, stop = str(found.lastgroup), found.end()
        if nests and kind == "operator" and text.startswith("/*", start):
            kind, stop = "comment", nested_end(text, start)
        yield kind, start, stop
        start = stop
