"""What a long statement does, seen without cutting it into tokens: its text without strings, names, comments
and what stands in parentheses, all of which regular expressions take out."""

import re
from collections.abc import Iterator
from functools import cache

from queryflux.sql.lexer import opaque_pattern, tokens, traits_of

_NAME_BEFORE = re.compile(r"[\w$@:.]")
_FIRST_NAME = re.compile(r"\s*WITH\s+(?:RECURSIVE\s+)?[\w$]+")
_GAP = r"(?:\s|'')*+"
_WRITING_CTE = re.compile(
    rf"AS{_GAP}(?:(?:NOT{_GAP})?MATERIALIZED{_GAP})?\({_GAP}(?:INSERT|UPDATE|DELETE|MERGE)\b(?!\s*\()"
)
_GROUP = re.compile(r"\((?:[^()]++|\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\))*+\)")
_PARENTHESES = re.compile(r"\(++|\)++")
_DEEPEST_COMMENT = 3


def outline(text: str, dialect: str, start: int) -> str:
    """The text from ``start`` on in upper case, with ``''`` for each string, quoted name and comment. Takes
    time linear in the text."""
    without = _opaque_expression(dialect).sub("''", text if start == 0 else text[start:])
    if traits_of(dialect).nested_comments and "/*" in without:
        parts = (
            "''" if kind in ("comment", "string", "quoted") else text[first:stop]
            for kind, first, stop in tokens(text, dialect, start)
        )
        without = "".join(parts)
    return without.upper()


def top_level(whole: str) -> str:
    """The first statement of an outline without what stands in parentheses."""
    rest = _GROUP.sub("()", whole)
    if rest.count("(") > rest.count("()"):
        rest = _walked(rest)
    return rest.partition(";")[0]


def writing_cte(whole: str) -> bool:
    """Whether a common table expression of an outline changes data; MySQL's function INSERT() does not."""
    return _WRITING_CTE.search(whole) is not None


def landmarks(top: str, words: str, after_with: bool = False) -> Iterator[str]:
    """Which of ``words`` (in upper case, between bars) a top level holds, in order; not those that are a name
    after a dot or comma, or the first one ``after_with``."""
    first = _FIRST_NAME.match(top) if after_with else None
    for found in _words_expression(words).finditer(top, first.end() if first else 0):
        start = found.start()
        if start and _NAME_BEFORE.match(top, start - 1):
            continue
        if not top[max(0, start - 64) : start].rstrip().endswith(","):
            yield found.group()


def _walked(text: str) -> str:
    """What is outside of parentheses nested deeper than an expression can follow."""
    parts: list[str] = []
    depth = start = 0
    for found in _PARENTHESES.finditer(text):
        if depth == 0:
            parts.append(text[start : found.start()])
        count = found.end() - found.start()
        depth = depth + count if found.group()[0] == "(" else max(0, depth - count)
        start = found.end()
    if depth == 0:
        parts.append(text[start:])
    return "()".join(parts)


@cache
def _words_expression(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{words})(?![\w$])")


@cache
def _opaque_expression(dialect: str) -> re.Pattern[str]:
    traits = traits_of(dialect)
    comment = r"/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+(?:\*/|\Z)"
    for _ in range(_DEEPEST_COMMENT if traits.nested_comments else 0):
        comment = rf"/\*(?:[^*/]++|\*(?!/)|/(?!\*)|{comment})*+(?:\*/|\Z)"
    nested = "|" + comment if traits.nested_comments else ""
    return re.compile(opaque_pattern(traits) + nested)
