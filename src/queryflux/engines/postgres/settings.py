"""Settings of a client that follow it from one pooled connection to the next.

They come from its start-up packet and from plain SET statements. Before a statement runs on a connection
whose settings differ, one round trip makes them equal; connections that agree already are preferred.
"""

import re
from collections.abc import Mapping

from queryflux.model.errors import InvalidRequest
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session

Settings = tuple[tuple[str, str], ...]
"""Sorted pairs of canonical name and value."""

_REPLAYED = {
    name.lower(): name
    for name in (
        "client_encoding",
        "DateStyle",
        "IntervalStyle",
        "TimeZone",
        "application_name",
        "extra_float_digits",
        "bytea_output",
        "search_path",
        "statement_timeout",
        "lock_timeout",
        "default_transaction_isolation",
        "default_transaction_read_only",
        "standard_conforming_strings",
    )
}
_OPTION = re.compile(r"(?:-c\s*|--)([A-Za-z_.-]+)=((?:\\.|[^\\\s])*)")

UTF8 = "utf-8"
_CODECS = {
    "UTF8": UTF8,
    "UNICODE": UTF8,
    "LATIN1": "latin-1",
    "LATIN9": "iso8859-15",
    "WIN1250": "cp1250",
    "WIN1251": "cp1251",
    "WIN1252": "cp1252",
    "KOI8R": "koi8-r",
    "EUC_JP": "euc-jp",
    "EUC_KR": "euc-kr",
    "SJIS": "cp932",
    "GBK": "gbk",
    "BIG5": "big5",
}


def canonical_name(name: str) -> str | None:
    """The name as the manual spells it, or None for a setting that is not replayed."""
    return _REPLAYED.get(name.lower())


def settings_of(session: Session) -> Settings:
    """What the client asked for: a PostgreSQL client in its start-up packet, its ``options`` included; one of
    another protocol by its default schema, which is then searched before ``public``."""
    if session.protocol is ClientProtocol.POSTGRES_WIRE:
        return from_startup(session.extra)
    if not session.database:
        return ()
    quoted = session.database.replace('"', '""')
    return (("search_path", f'"{quoted}", public'),)


def from_startup(parameters: Mapping[str, str]) -> Settings:
    """The replayed settings among start-up parameters; others are the door's business."""
    found: dict[str, str] = {}
    for name, value in _OPTION.findall(parameters.get("options", "")):
        known = canonical_name(name.replace("-", "_"))
        if known is not None:
            found[known] = re.sub(r"\\(.)", r"\1", value)
    for name, value in parameters.items():
        known = canonical_name(name)
        if known is not None:
            found[known] = value
    return tuple(sorted(found.items()))


def with_setting(settings: Settings, name: str, value: str) -> Settings:
    """The same with one setting changed."""
    return tuple(sorted({**dict(settings), name: value}.items()))


def without_setting(settings: Settings, name: str) -> Settings:
    """The same without one setting."""
    return tuple(pair for pair in settings if pair[0] != name)


def codec_of(settings: Settings) -> str:
    """Python's name for the client encoding in which statements travel."""
    for name, value in settings:
        if name == "client_encoding":
            word = "".join(char for char in value.upper() if char.isalnum() or char == "_")
            return _CODECS.get(word, UTF8)
    return UTF8


def encoded(text: str, codec: str) -> bytes:
    """A statement in the client's encoding. Raises InvalidRequest."""
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the statement holds a character that the client's encoding lacks: {error.reason}"
        ) from None


def literal(value: str) -> str:
    """A string constant, whatever standard_conforming_strings says."""
    escaped = value.replace("'", "''")
    if "\\" in value:
        doubled = escaped.replace("\\", "\\\\")
        return f" E'{doubled}'"
    return f"'{escaped}'"


def change(current: Settings | None, wanted: Settings) -> list[str]:
    """The statements that take a connection from one to the other; none when they are equal. With ``current``
    unknown every wanted setting is set."""
    have = dict(current or ())
    want = dict(wanted)
    statements = [f"RESET {name}" for name in have if name not in want]
    sets = [
        f"set_config('{name}', {literal(value)}, false)" for name, value in wanted if have.get(name) != value
    ]
    if sets:
        statements.append(f"SELECT {', '.join(sets)}")
    return statements
