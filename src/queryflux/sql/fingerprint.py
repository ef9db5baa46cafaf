"""What makes two statements the same question: digests of a text, without a parser.

A text is masked first (a ``?`` for every string and number, no comments) by one expression that passes over
everything else in long runs; a text that differs from an earlier one only in its values is then found in a
cache. What is new is put into a normal form: words in lower case, one way of spacing, one ``?`` for a list of
values and one ``(?)`` for a list of rows. Only so many characters are normalised; the rest counts as it
stands.
"""

import re
from functools import cache
from typing import NamedTuple

import xxhash

from queryflux.sql.lexer import (
    WORD,
    Traits,
    comment_pattern,
    nested_end,
    quoted_pattern,
    string_pattern,
    tokens,
    traits_of,
)
from queryflux.sql.textcache import TextCache

MAX_DIGEST_CHARS = 4096
"""Longest digest text."""
MAX_NORMALISED_CHARS = 4 << 10
"""So much of a masked text is normalised."""
_CACHED_BYTES = 8 << 20

_LETTERS = r"A-Za-z_\x80-\U0010FFFF"
_PREFIXES = "[eEbBxXnN]'|[uU]&['\"]"
_DIGITS = (
    r"(?:0[xX][0-9A-Fa-f]+|(?:[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9][0-9_]*+)(?:[eE][+-]?[0-9]+)?)"
    rf"(?:(?!\s|{_PREFIXES})[{_LETTERS}0-9$]++)?"
)
"""A number, and letters that stick to it (``10L``, ``0b101``)."""
_VALUE_WORD = r"(?:null|true|false|default)\b(?=\s*[,)])"
_FIRST_VALUE = rf"(?:\?|(?:(?<=[(,])|(?<=[(,]\s)){_VALUE_WORD})"
_LIST = re.compile(rf"{_FIRST_VALUE}(?:\s*+,\s*+(?:[-+]\s*+)?(?:\?|{_VALUE_WORD}))++", re.IGNORECASE)
_ROWS = re.compile(r"\(\s*+\?\s*+\)(?:\s*+,\s*+\(\s*+\?\s*+\))++")

_TIGHT_AFTER = frozenset({"(", ".", "::", "[", ""})
_TIGHT_BEFORE = frozenset({")", ".", "::", ",", "]", "[", ";"})
_SPACED_WORDS = """
in values and or not as from join on exists using where select any all some over union except intersect into
by with when then else having between like limit offset case set is distinct
"""
_SPACED = frozenset(_SPACED_WORDS.split())


class Fingerprint(NamedTuple):
    """Digests of a text. ``query_hash`` is of the exact text; the other two are None for a text that cannot
    be cut into tokens. Hashes are 64-bit xxHash values as signed integers."""

    query_hash: int
    parameterized_hash: int | None
    digest_text: str | None


_shapes: TextCache[tuple[int, str]] = TextCache(_CACHED_BYTES)


def fingerprint(text: str, dialect: str, *, cut: bool = False) -> Fingerprint:
    """The digests of a statement; never raises. ``cut`` says that the text is the beginning of a longer one,
    which may end anywhere."""
    masked, whole = _mask(text, dialect)
    if not whole and not cut:
        return Fingerprint(signed_hash(text), None, None)
    key = (masked, dialect, cut)
    known = _shapes.get(key)
    if known is None:
        known = _shape(masked, dialect, cut)
        _shapes.put(key, known, masked, known[1])
    return Fingerprint(signed_hash(text), *known)


def signed_hash(text: str) -> int:
    """xxHash-64 of the UTF-8 text as a signed integer."""
    value = xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"))
    return value - (1 << 64) if value >> 63 else value


def mask_literals(text: str, dialect: str) -> str | None:
    """The text with ``?`` for every string and number and without comments, which may hold anything; None for
    a text that cannot be cut into tokens (a quote or a comment is never closed): nobody can say which part of
    it is a value. Takes time linear in the text."""
    masked, whole = _mask(text, dialect)
    return masked if whole else None


@cache
def _step_expression(dialect: str) -> re.Pattern[str]:
    """What is kept, as far as it goes, then one thing that is not: a value, a comment, the mark at the
    end."""
    traits = traits_of(dialect)
    run = rf"[^'\"`0-9.\n@$/\-#*{_LETTERS}]"
    kept = (
        rf"(?!\s|{_PREFIXES}){WORD}{run}*+",
        rf"{run}++",
        rf"(?!{_openers(traits)})[$/\-#*]",
        r"\.(?![0-9])",
        r"[^\S\n]++",
        r"\n(?!\Z)",
        r"@[\w.$@]*+",
        r"\$[0-9]++",
        quoted_pattern(traits),
        "" if traits.backticks else "`",
    )
    parts = (
        rf"(?P<kept>(?:{'|'.join(filter(None, kept))})*+)",
        rf"(?:(?P<value>{string_pattern(traits)}|{_DIGITS})|(?P<comment>{comment_pattern(traits)})",
        r"|(?P<nested>/\*)" if traits.nested_comments else "",
        r"|(?P<end>\n\Z)|(?P<open>\Z))",
    )
    return re.compile("".join(parts))


def _openers(traits: Traits) -> str:
    """What begins a comment or a dollar-quoted string."""
    parts = [r"--(?=[\s\x00-\x1f])" if traits.dash_needs_space else "--", r"/\*", r"\$[0-9]"]
    if traits.hash_comments:
        parts.append(r"\#")
    if traits.executable_comments:
        parts.append(r"\*/")
    if traits.dollar_quotes:
        parts.append(rf"\$(?:[{_LETTERS}][{_LETTERS}0-9]*+)?\$")
    return "|".join(parts)


def _mask(text: str, dialect: str) -> tuple[str, bool]:
    """The masked text, and whether every quote and comment in it is closed."""
    # An open quote takes everything to the end, a mark that follows the text included.
    marked = text + "\n"
    match = _step_expression(dialect).match
    parts: list[str] = []
    position, end = 0, len(marked)
    while True:
        found = match(marked, position)
        assert found is not None
        parts.append(found["kept"])
        kind, position = found.lastgroup, found.end()
        if kind == "end":
            return "".join(parts), True
        if kind == "open":
            return "".join(parts)[:-1], False  # an open quoted name, with the mark
        if kind == "nested":
            position = nested_end(marked, found.start("nested"))
        parts.append("?" if kind == "value" else " ")
        if position == end:
            return "".join(parts), False


def _shape(masked: str, dialect: str, cut: bool) -> tuple[int, str]:
    masked = _collapse(masked)
    head, tail = masked[:MAX_NORMALISED_CHARS], masked[MAX_NORMALISED_CHARS:]
    shape = _collapse(_normalise(head, dialect))
    if cut:
        shape = shape.rstrip(" (?,")  # where in a list the text was cut says nothing
        tail = tail.rstrip(" (?,")
    if cut or tail:
        shape += " ..."
    return signed_hash(shape + tail), shape[:MAX_DIGEST_CHARS]


def _collapse(text: str) -> str:
    return _ROWS.sub("(?)", _LIST.sub("?", text))


def _normalise(masked: str, dialect: str) -> str:
    shape: list[str] = []
    before, last = "", ""
    for kind, start, stop in tokens(masked, dialect):
        if kind == "space":
            continue
        this = masked[start:stop]
        if kind == "word":
            this = this.lower()
        elif kind == "parameter":
            this = "?"
        if this == "?" and last in ("-", "+") and _is_sign(before):
            shape[-1] = shape[-1].replace(last, "?")
        else:
            shape.append(_gap(last, this) + this)
        before, last = last, this
    while shape and shape[-1] == ";":
        shape.pop()
    return "".join(shape)


def _gap(last: str, this: str) -> str:
    if last in _TIGHT_AFTER or this in _TIGHT_BEFORE:
        return ""
    if this == "(" and last not in _SPACED and (last[-1].isalnum() or last[-1] in '_"`'):
        return ""
    return " "


def _is_sign(before: str) -> bool:
    """Whether a minus after this token is the sign of a number."""
    return before in _SPACED or not (before and (before[-1].isalnum() or before[-1] in "_\"`')]?"))
