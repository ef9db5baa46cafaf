"""Trino's types, from the signature of a column or from text (Trino documentation, "Data types")."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from queryflux.model.errors import EngineConnectionLost


@dataclass(frozen=True, slots=True)
class TrinoType:
    """``name`` in lower case, without parameters; ``numbers`` are length, precision and scale as far as they
    are given; ``parts`` the types of an array, a map or a row, and ``names`` the names of a row's fields."""

    name: str
    numbers: tuple[int, ...] = ()
    parts: "tuple[TrinoType, ...]" = ()
    names: tuple[str, ...] = ()

    def number(self, index: int, default: int) -> int:
        """A numeric parameter, or what it is when left out."""
        return self.numbers[index] if index < len(self.numbers) else default


def from_signature(raw: bytes | msgspec.Raw, text: str) -> TrinoType:
    """The type that ``typeSignature`` describes; where there is none, that which ``text`` names. Raises
    EngineConnectionLost."""
    if not bytes(raw):
        return from_text(text)
    try:
        return _signature(msgspec.json.decode(raw))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise EngineConnectionLost(
            f"Trino described a column's type in a way we do not know: {text}"
        ) from error


def _signature(document: dict[str, Any]) -> TrinoType:
    numbers: list[int] = []
    parts: list[TrinoType] = []
    names: list[str] = []
    for argument in document.get("arguments") or ():
        kind, value = argument["kind"], argument["value"]
        if kind == "LONG":
            numbers.append(int(value))
        elif kind == "TYPE":
            parts.append(_signature(value))
        elif kind == "NAMED_TYPE":
            parts.append(_signature(value["typeSignature"]))
            names.append(_field_name(value, len(names)))
    return TrinoType(str(document["rawType"]).lower(), tuple(numbers), tuple(parts), tuple(names))


def _field_name(value: dict[str, Any], index: int) -> str:
    name = value.get("fieldName") or {}
    return name.get("name") or f"field{index}"


_TOKEN = re.compile(r'\s*("(?:[^"]|"")*"|[A-Za-z_][\w$]*|\d+|[(),])')
_TAILS = (
    ("with", "time", "zone"),
    ("without", "time", "zone"),
    ("year", "to", "month"),
    ("day", "to", "second"),
)


def from_text(text: str) -> TrinoType:
    """The type that ``text`` names, as DESCRIBE OUTPUT and information_schema write it; what cannot be read
    is a type of that name."""
    tokens = _TOKEN.findall(text)
    try:
        kind, rest = _parse(tokens)
    except (IndexError, ValueError, RecursionError):
        return TrinoType(text.lower())
    return kind if not rest else TrinoType(text.lower())


def _parse(tokens: Sequence[str]) -> tuple[TrinoType, Sequence[str]]:
    name, rest = tokens[0].lower(), tokens[1:]
    numbers: list[int] = []
    parts: list[TrinoType] = []
    names: list[str] = []
    if rest and rest[0] == "(":
        rest = rest[1:]
        while rest[0] != ")":
            if rest[0].isdigit():
                numbers.append(int(rest[0]))
                rest = rest[1:]
            else:
                if name == "row" and rest[1] not in {"(", ",", ")"} and not _is_tail(rest[1:]):
                    names.append(_unquoted(rest[0]))
                    rest = rest[1:]
                elif name == "row":
                    names.append(f"field{len(names)}")
                part, rest = _parse(rest)
                parts.append(part)
            if rest[0] == ",":
                rest = rest[1:]
        rest = rest[1:]
    for tail in _TAILS:
        if tuple(word.lower() for word in rest[: len(tail)]) == tail:
            name, rest = f"{name} {' '.join(tail)}", rest[len(tail) :]
    return TrinoType(
        name.removesuffix(" without time zone"), tuple(numbers), tuple(parts), tuple(names)
    ), rest


def _is_tail(tokens: Sequence[str]) -> bool:
    return any(tuple(word.lower() for word in tokens[: len(tail)]) == tail for tail in _TAILS)


def _unquoted(token: str) -> str:
    return token[1:-1].replace('""', '"') if token.startswith('"') else token


_POSTGRES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "integer": "integer",
    "bigint": "bigint",
    "real": "real",
    "double": "double precision",
    "decimal": "numeric",
    "varchar": "text",
    "char": "character",
    "varbinary": "bytea",
    "json": "json",
    "date": "date",
    "time": "time without time zone",
    "time with time zone": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamp with time zone": "timestamp with time zone",
    "interval year to month": "interval",
    "interval day to second": "interval",
    "uuid": "uuid",
    "ipaddress": "inet",
    "unknown": "",
}


def postgres_name(kind: TrinoType) -> str:
    """A type in PostgreSQL's spelling; empty when it is open, ``text`` when there is none like it."""
    if kind.name == "array" and kind.parts:
        return f"{postgres_name(kind.parts[0])}[]"
    name = _POSTGRES.get(kind.name, "text")
    if name == "numeric" and len(kind.numbers) == 2:
        return f"numeric({kind.numbers[0]},{kind.numbers[1]})"
    return name
