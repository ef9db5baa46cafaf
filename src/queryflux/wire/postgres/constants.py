"""Numbers and letters of the protocol that both sides share (manual, "Message Formats" and pg_type.dat)."""

# Start-up codes: the word after the length of a packet without a type byte.
PROTOCOL_3_0 = 0x0003_0000
PROTOCOL_3_2 = 0x0003_0002
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104

MAX_STARTUP_LENGTH = 10_000
"""PostgreSQL's own limit of a start-up packet, in bytes (MAX_STARTUP_PACKET_LENGTH)."""


class Front:
    """Types of the client's messages, as the integer of their first byte."""

    BIND = ord("B")
    CLOSE = ord("C")
    COPY_DATA = ord("d")
    COPY_DONE = ord("c")
    COPY_FAIL = ord("f")
    DESCRIBE = ord("D")
    EXECUTE = ord("E")
    FLUSH = ord("H")
    FUNCTION_CALL = ord("F")
    PARSE = ord("P")
    PASSWORD = ord("p")
    QUERY = ord("Q")
    SYNC = ord("S")
    TERMINATE = ord("X")


class Back:
    """Types of the server's messages, as the integer of their first byte."""

    AUTHENTICATION = ord("R")
    BACKEND_KEY_DATA = ord("K")
    BIND_COMPLETE = ord("2")
    CLOSE_COMPLETE = ord("3")
    COMMAND_COMPLETE = ord("C")
    COPY_BOTH_RESPONSE = ord("W")
    COPY_DATA = ord("d")
    COPY_DONE = ord("c")
    COPY_IN_RESPONSE = ord("G")
    COPY_OUT_RESPONSE = ord("H")
    DATA_ROW = ord("D")
    EMPTY_QUERY = ord("I")
    ERROR = ord("E")
    FUNCTION_CALL_RESPONSE = ord("V")
    NEGOTIATE_PROTOCOL_VERSION = ord("v")
    NO_DATA = ord("n")
    NOTICE = ord("N")
    NOTIFICATION = ord("A")
    PARAMETER_DESCRIPTION = ord("t")
    PARAMETER_STATUS = ord("S")
    PARSE_COMPLETE = ord("1")
    PORTAL_SUSPENDED = ord("s")
    READY_FOR_QUERY = ord("Z")
    ROW_DESCRIPTION = ord("T")


class Auth:
    """Sub-codes of the Authentication message."""

    OK = 0
    CLEARTEXT_PASSWORD = 3
    MD5_PASSWORD = 5
    SASL = 10
    SASL_CONTINUE = 11
    SASL_FINAL = 12


SCRAM_SHA_256 = "SCRAM-SHA-256"

BINARY_FORMAT = 1


class Oid:
    """Type OIDs (pg_type.dat); they never change between versions."""

    UNSPECIFIED = 0
    BOOL = 16
    BYTEA = 17
    CHAR = 18
    NAME = 19
    INT8 = 20
    INT2 = 21
    INT4 = 23
    REGPROC = 24
    TEXT = 25
    OID = 26
    XID = 28
    JSON = 114
    XML = 142
    FLOAT4 = 700
    FLOAT8 = 701
    UNKNOWN = 705
    MONEY = 790
    INET = 869
    CIDR = 650
    BPCHAR = 1042
    VARCHAR = 1043
    DATE = 1082
    TIME = 1083
    TIMESTAMP = 1114
    TIMESTAMPTZ = 1184
    INTERVAL = 1186
    TIMETZ = 1266
    BIT = 1560
    VARBIT = 1562
    NUMERIC = 1700
    REGCLASS = 2205
    REGTYPE = 2206
    VOID = 2278
    UUID = 2950
    JSONB = 3802

    BOOL_ARRAY = 1000
    BYTEA_ARRAY = 1001
    NAME_ARRAY = 1003
    INT2_ARRAY = 1005
    INT4_ARRAY = 1007
    TEXT_ARRAY = 1009
    BPCHAR_ARRAY = 1014
    VARCHAR_ARRAY = 1015
    INT8_ARRAY = 1016
    FLOAT4_ARRAY = 1021
    FLOAT8_ARRAY = 1022
    OID_ARRAY = 1028
    TIMESTAMP_ARRAY = 1115
    DATE_ARRAY = 1182
    TIME_ARRAY = 1183
    TIMESTAMPTZ_ARRAY = 1185
    INTERVAL_ARRAY = 1187
    NUMERIC_ARRAY = 1231
    TIMETZ_ARRAY = 1270
    JSON_ARRAY = 199
    UUID_ARRAY = 2951
    JSONB_ARRAY = 3807


ARRAY_OF: dict[int, int] = {
    Oid.BOOL: Oid.BOOL_ARRAY,
    Oid.BYTEA: Oid.BYTEA_ARRAY,
    Oid.NAME: Oid.NAME_ARRAY,
    Oid.INT2: Oid.INT2_ARRAY,
    Oid.INT4: Oid.INT4_ARRAY,
    Oid.INT8: Oid.INT8_ARRAY,
    Oid.TEXT: Oid.TEXT_ARRAY,
    Oid.BPCHAR: Oid.BPCHAR_ARRAY,
    Oid.VARCHAR: Oid.VARCHAR_ARRAY,
    Oid.FLOAT4: Oid.FLOAT4_ARRAY,
    Oid.FLOAT8: Oid.FLOAT8_ARRAY,
    Oid.OID: Oid.OID_ARRAY,
    Oid.TIMESTAMP: Oid.TIMESTAMP_ARRAY,
    Oid.TIMESTAMPTZ: Oid.TIMESTAMPTZ_ARRAY,
    Oid.DATE: Oid.DATE_ARRAY,
    Oid.TIME: Oid.TIME_ARRAY,
    Oid.TIMETZ: Oid.TIMETZ_ARRAY,
    Oid.INTERVAL: Oid.INTERVAL_ARRAY,
    Oid.NUMERIC: Oid.NUMERIC_ARRAY,
    Oid.JSON: Oid.JSON_ARRAY,
    Oid.JSONB: Oid.JSONB_ARRAY,
    Oid.UUID: Oid.UUID_ARRAY,
}

EPOCH_DAYS = 10_957
"""Days from 1970-01-01 to PostgreSQL's own epoch, 2000-01-01."""
EPOCH_MICROS = 946_684_800_000_000
"""The same in microseconds."""
