"""A statement as DuckDB's tokenizer sees it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

_NAME = re.compile(r'"((?:[^"]|"")*)"|(\w+)')
WRITING = {"copy", "insert", "update", "delete", "merge"}


@dataclass(frozen=True, slots=True)
class Token:
    """``offset`` is in bytes of UTF-8; ``text`` goes up to the next token and may end in blanks; ``name`` is
    the identifier or keyword in lower case, empty for anything else."""

    offset: int
    text: str
    name: str


def tokens(sql: str) -> list[Token]:
    """The tokens of a text, without its comments."""
    raw = sql.encode()
    found = duckdb.tokenize(sql)
    ends = [offset for offset, _ in found[1:]] + [len(raw)]
    result = []
    for (offset, kind), end in zip(found, ends, strict=True):
        if kind != duckdb.token_type.comment:
            text = raw[offset:end].decode(errors="replace")
            result.append(Token(offset, text, _name(text)))
    return result


def _name(text: str) -> str:
    match = _NAME.match(text)
    if match is None:
        return ""
    return (match[1].replace('""', '"') if match[1] is not None else match[2]).lower()


def writing_cte(found: Sequence[Token]) -> str:
    """COPY, INSERT and so on where a WITH clause holds one (``AS [NOT MATERIALIZED] (COPY ...``), the only
    place where a write can stand inside a SELECT; else empty."""
    opened = False
    before = ""
    for token in found:
        if opened and token.name in WRITING:
            return token.name.upper()
        opened = token.text.startswith("(") and (opened or before in {"as", "materialized"})
        before = token.name
    return ""
