"""Command packets as values. Source: MySQL internals manual, "Command Phase"."""

from dataclasses import dataclass

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.mysql.constants import Command
from queryflux.wire.mysql.errors import BAD_STRING, ServerError
from queryflux.wire.mysql.lenenc import Cursor


@dataclass(frozen=True, slots=True)
class LongData:
    """A piece of one parameter, sent ahead of COM_STMT_EXECUTE; it is never answered."""

    statement: int
    parameter: int
    data: bytes


def text_of(payload: bytes) -> str:
    """The text after the command byte (COM_QUERY, COM_INIT_DB, COM_STMT_PREPARE).

    Raises ServerError when it is not UTF-8: the connection can go on.
    """
    try:
        return str(memoryview(payload)[1:], "utf-8")
    except UnicodeDecodeError as error:
        raise ServerError(
            BAD_STRING,
            f"the text is not UTF-8: byte 0x{payload[error.start + 1]:02X} at offset {error.start}",
            hint="connect with the character set utf8mb4; write binary values as X'...'",
        ) from None


def number_of(payload: bytes, name: str, width: int = 4) -> int:
    """The integer after the command byte (COM_PROCESS_KILL, COM_STMT_CLOSE, COM_STMT_RESET,
    COM_SET_OPTION). Raises ProtocolViolation."""
    return Cursor(payload, name, 1).fixed(width)


def read_long_data(payload: bytes) -> LongData:
    """COM_STMT_SEND_LONG_DATA. Raises ProtocolViolation."""
    cursor = Cursor(payload, "piece of long data", 1)
    return LongData(cursor.fixed(4), cursor.fixed(2), cursor.rest())


def command_of(payload: bytes) -> int:
    """The command byte; it need not be one of Command. Raises ProtocolViolation for an empty packet."""
    if not payload:
        raise ProtocolViolation("a command packet is empty")
    return payload[0]


def name_of(command: int) -> str:
    """A command's name for messages."""
    try:
        return f"COM_{Command(command).name}"
    except ValueError:
        return f"command 0x{command:02x}"
