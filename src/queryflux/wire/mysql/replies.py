"""What the server says after a command, except rows of Arrow batches: OK, ERR, EOF, columns, small rows.

Source: MySQL internals manual, "Generic Response Packets", "Text Resultset", "Binary Protocol Resultset".
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from queryflux.wire.mysql.constants import BINARY, UTF8MB4, FieldType, ServerStatus
from queryflux.wire.mysql.lenenc import NULL, lenenc_bytes, lenenc_int

Cell = str | int | None
"""A value of an answer that the door itself makes."""

_LONGEST_MESSAGE = 4096
_TEXT_LENGTH = 65532


@dataclass(frozen=True, slots=True)
class Column:
    """One column as clients see it. ``length`` is in bytes, for display; ``decimals`` the digits after the
    point, or of fractional seconds."""

    name: str
    type: FieldType = FieldType.VAR_STRING
    collation: int = UTF8MB4
    length: int = _TEXT_LENGTH
    flags: int = 0
    decimals: int = 0


def number_column(name: str) -> Column:
    """A column of whole numbers."""
    return Column(name, FieldType.LONGLONG, BINARY, 20)


def ok(
    status: int,
    *,
    affected: int = 0,
    insert_id: int = 0,
    warnings: int = 0,
    info: str = "",
    end: bool = False,
) -> bytes:
    """An OK packet; with ``end`` the one that ends a result set for a client with DEPRECATE_EOF."""
    return b"".join(
        (
            b"\xfe" if end else b"\0",
            lenenc_int(affected),
            lenenc_int(insert_id),
            struct.pack("<HH", status & 0xFFFF, min(warnings, 0xFFFF)),
            info.encode(),
        )
    )


def ok_with_state(status: int, changes: bytes) -> bytes:
    """An OK packet for a client with SESSION_TRACK that carries session changes."""
    flags = status | ServerStatus.SESSION_STATE_CHANGED
    return b"\0\0\0" + struct.pack("<HH", flags, 0) + b"\0" + lenenc_bytes(changes)


def schema_change(database: str) -> bytes:
    """The session change that says which database is the default one now (SESSION_TRACK_SCHEMA)."""
    return b"\x01" + lenenc_bytes(lenenc_bytes(database.encode()))


def eof(status: int, warnings: int = 0) -> bytes:
    """An EOF packet, for clients without DEPRECATE_EOF and where the protocol has no OK instead."""
    return b"\xfe" + struct.pack("<HH", min(warnings, 0xFFFF), status & 0xFFFF)


def error(number: int, sqlstate: str, message: str) -> bytes:
    """An ERR packet. Before the client has sent its capabilities ``sqlstate`` is empty and left out."""
    text = message.encode("utf-8", "replace")
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE].decode("utf-8", "ignore").encode() + b"..."
    state = b"#" + sqlstate.encode("ascii") if sqlstate else b""
    return b"\xff" + struct.pack("<H", number) + state + text


def column_definition(column: Column) -> bytes:
    """Protocol::ColumnDefinition41; a column of ours belongs to no table."""
    name = lenenc_bytes(column.name.encode("utf-8", "replace"))
    return b"".join(
        (
            b"\x03def\0\0\0",
            name,
            name,
            b"\x0c",
            struct.pack(
                "<HIBHBH",
                column.collation,
                column.length,
                column.type,
                column.flags,
                column.decimals,
                0,
            ),
        )
    )


def result_header(columns: Sequence[Column], status: int, *, deprecate_eof: bool) -> list[bytes]:
    """The payloads before the rows: how many columns, each of them, and an EOF where the client wants it."""
    payloads = [lenenc_int(len(columns)), *map(column_definition, columns)]
    if not deprecate_eof:
        payloads.append(eof(status))
    return payloads


def result_end(status: int, *, deprecate_eof: bool, warnings: int = 0) -> bytes:
    """The payload after the last row."""
    return ok(status, warnings=warnings, end=True) if deprecate_eof else eof(status, warnings)


def text_row(values: Sequence[Cell]) -> bytes:
    """A row of the text protocol."""
    return b"".join(NULL if value is None else lenenc_bytes(str(value).encode()) for value in values)


def binary_row(values: Sequence[Cell], columns: Sequence[Column]) -> bytes:
    """A row of the binary protocol, of columns that ``number_column`` or ``Column`` made."""
    bitmap = bytearray((len(values) + 9) // 8)
    parts: list[bytes] = []
    for index, (value, column) in enumerate(zip(values, columns, strict=True), 2):
        if value is None:
            bitmap[index >> 3] |= 1 << (index & 7)
        elif column.type == FieldType.LONGLONG:
            parts.append((int(value) & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"))
        else:
            parts.append(lenenc_bytes(str(value).encode()))
    return b"\0" + bytes(bitmap) + b"".join(parts)


def prepared(statement: int, columns: int, parameters: int) -> bytes:
    """COM_STMT_PREPARE_OK."""
    return b"\0" + struct.pack("<IHHBH", statement, columns, parameters, 0, 0)
