"""Numbers of the MySQL client/server protocol (MySQL internals manual, "Client/Server Protocol")."""

from enum import IntEnum, IntFlag

from queryflux.model.settings import MYSQL_VERSION

PROTOCOL_VERSION = 10
SERVER_VERSION = MYSQL_VERSION
MAX_PAYLOAD = 0xFFFFFF
"""A packet of this length is followed by another one; 16 MiB less one byte."""
NONCE_BYTES = 20

UTF8MB4 = 45
"""Collation utf8mb4_general_ci: text columns and the connection itself."""
BINARY = 63
"""Collation ``binary``: numbers, dates and bytes."""


class Capability(IntFlag):
    """Capability flags; the ones offered are in OFFERED."""

    LONG_PASSWORD = 1 << 0
    FOUND_ROWS = 1 << 1
    LONG_FLAG = 1 << 2
    CONNECT_WITH_DB = 1 << 3
    NO_SCHEMA = 1 << 4
    COMPRESS = 1 << 5
    ODBC = 1 << 6
    LOCAL_FILES = 1 << 7
    IGNORE_SPACE = 1 << 8
    PROTOCOL_41 = 1 << 9
    INTERACTIVE = 1 << 10
    SSL = 1 << 11
    IGNORE_SIGPIPE = 1 << 12
    TRANSACTIONS = 1 << 13
    RESERVED = 1 << 14
    SECURE_CONNECTION = 1 << 15
    MULTI_STATEMENTS = 1 << 16
    MULTI_RESULTS = 1 << 17
    PS_MULTI_RESULTS = 1 << 18
    PLUGIN_AUTH = 1 << 19
    CONNECT_ATTRS = 1 << 20
    PLUGIN_AUTH_LENENC_DATA = 1 << 21
    CAN_HANDLE_EXPIRED_PASSWORDS = 1 << 22
    SESSION_TRACK = 1 << 23
    DEPRECATE_EOF = 1 << 24


OFFERED = (
    Capability.LONG_PASSWORD
    | Capability.FOUND_ROWS
    | Capability.LONG_FLAG
    | Capability.CONNECT_WITH_DB
    | Capability.NO_SCHEMA
    | Capability.IGNORE_SPACE
    | Capability.PROTOCOL_41
    | Capability.INTERACTIVE
    | Capability.IGNORE_SIGPIPE
    | Capability.TRANSACTIONS
    | Capability.RESERVED
    | Capability.SECURE_CONNECTION
    | Capability.MULTI_STATEMENTS
    | Capability.MULTI_RESULTS
    | Capability.PS_MULTI_RESULTS
    | Capability.PLUGIN_AUTH
    | Capability.CONNECT_ATTRS
    | Capability.PLUGIN_AUTH_LENENC_DATA
    | Capability.SESSION_TRACK
    | Capability.DEPRECATE_EOF
)
"""Without SSL, which depends on the listener. LOCAL_FILES and COMPRESS are not offered."""


class Command(IntEnum):
    """The first byte of a command packet."""

    QUIT = 0x01
    INIT_DB = 0x02
    QUERY = 0x03
    FIELD_LIST = 0x04
    STATISTICS = 0x09
    PROCESS_INFO = 0x0A
    PROCESS_KILL = 0x0C
    DEBUG = 0x0D
    PING = 0x0E
    CHANGE_USER = 0x11
    STMT_PREPARE = 0x16
    STMT_EXECUTE = 0x17
    STMT_SEND_LONG_DATA = 0x18
    STMT_CLOSE = 0x19
    STMT_RESET = 0x1A
    SET_OPTION = 0x1B
    STMT_FETCH = 0x1C
    RESET_CONNECTION = 0x1F


class ServerStatus(IntFlag):
    """Status flags of OK and EOF packets."""

    IN_TRANS = 0x0001
    AUTOCOMMIT = 0x0002
    MORE_RESULTS = 0x0008
    CURSOR_EXISTS = 0x0040
    SESSION_STATE_CHANGED = 0x4000


class FieldType(IntEnum):
    """Column and parameter types."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


class FieldFlag(IntFlag):
    """Flags of a column definition."""

    NOT_NULL = 0x0001
    BLOB = 0x0010
    UNSIGNED = 0x0020
    BINARY = 0x0080
