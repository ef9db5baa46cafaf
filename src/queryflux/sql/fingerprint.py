"""What makes two statements the same question: digests of a text without a parser.

The normal form drops comments and white space, folds unquoted words to lower case and puts spaces where they
read well. The parameterised form also writes ``?`` for every literal and parameter, one ``?`` for a list of
them, and one ``(?)`` for a list of rows.
"""

import re
from dataclasses import dataclass

import xxhash

from queryflux.sql.lexer import tokens
from queryflux.sql.textcache import TextCache

MAX_DIGEST_CHARS = 4096
"""Longest digest text that is kept."""
MAX_READ_CHARS = 64 << 10
"""Only so much of a statement is normalised; the rest enters ``query_hash`` as it stands."""
_CACHED_BYTES = 4 << 20
_LONGEST_KEPT = 16 << 10
_TIGHT_AFTER = frozenset({"(", ".", "::", "[", ""})
_TIGHT_BEFORE = frozenset({")", ".", "::", ",", "]", "[", ";"})
_SPACED_WORDS = """
in values and or not as from join on exists using where select any all some over union except intersect into
by with when then else having between like limit offset case set
"""
_SPACED = frozenset(_SPACED_WORDS.split())
_LITERALS = frozenset({"string", "number", "parameter"})
_LIST = re.compile(r"\?(?:, \?)++")
_ROWS = re.compile(r"\(\?\)(?:, ?\(\?\))++")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Signed 64-bit xxHash values as the history table keeps them, and the text of the second."""

    query_hash: int
    query_parameterized_hash: int
    digest_text: str


_cache: TextCache[Fingerprint] = TextCache(_CACHED_BYTES)


def fingerprint(text: str, dialect: str) -> Fingerprint:
    """The digests of a statement. Cached by text, in about 4 MiB."""
    key = (text, dialect)
    known = _cache.get(key)
    if known is None:
        known = _fingerprint(text, dialect)
        if len(text) <= _LONGEST_KEPT:
            _cache.put(key, known, text, known.digest_text)
    return known


def signed_hash(text: str) -> int:
    """xxHash-64 of the UTF-8 text as a signed integer."""
    value = xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"))
    return value - (1 << 64) if value >> 63 else value


def mask_literals(text: str, dialect: str) -> str:
    """The text with ``?`` for every string and number; the rest stays, without comments, which may hold
    anything. Time is linear in the text."""
    parts = []
    for kind, start, stop in tokens(text, dialect):
        if kind == "comment":
            parts.append(" ")
        else:
            parts.append("?" if kind in ("string", "number") else text[start:stop])
    return "".join(parts)


def _fingerprint(text: str, dialect: str) -> Fingerprint:
    exact, shape = _normalise(text[:MAX_READ_CHARS], dialect)
    shape = _ROWS.sub("(?)", _LIST.sub("?", shape))
    if len(text) > MAX_READ_CHARS:
        exact += text[MAX_READ_CHARS:]
        shape += " ..."
    return Fingerprint(signed_hash(exact), signed_hash(shape), shape[:MAX_DIGEST_CHARS])


def _normalise(text: str, dialect: str) -> tuple[str, str]:
    exact: list[str] = []
    shape: list[str] = []
    before, last = "", ""
    for kind, start, stop in tokens(text, dialect):
        if kind in ("space", "comment"):
            continue
        token = text[start:stop]
        if kind == "word":
            token = token.lower()
        gap = _gap(last, token)
        exact.append(gap + token)
        if kind not in _LITERALS:
            shape.append(gap + token)
        elif last in ("-", "+") and _is_sign(before):
            shape[-1] = shape[-1].replace(last, "?")
        else:
            shape.append(gap + "?")
        before, last = last, token
    while exact and last == ";":
        exact.pop()
        shape.pop()
        last = exact[-1].strip() if exact else ""
    return "".join(exact), "".join(shape)


def _gap(last: str, this: str) -> str:
    if last in _TIGHT_AFTER or this in _TIGHT_BEFORE:
        return ""
    if this == "(" and last not in _SPACED and (last[-1].isalnum() or last[-1] in '_"`'):
        return ""
    return " "


def _is_sign(before: str) -> bool:
    """Whether a minus after this token is the sign of a number."""
    return before in _SPACED or not (before and (before[-1].isalnum() or before[-1] in "_\"`')]?"))
