"""GetSqlInfo: what this server is and can do (the numbers are those of the Flight SQL specification)."""

from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

SERVER_NAME, SERVER_VERSION, ARROW_VERSION, READ_ONLY = 0, 1, 2, 3
SQL, SUBSTRAIT, TRANSACTION, CANCEL, BULK_INGESTION = 4, 5, 8, 9, 10
STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT = 100, 101
DDL_CATALOG, DDL_SCHEMA, DDL_TABLE = 500, 501, 502
IDENTIFIER_QUOTE_CHAR = 504

_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
SCHEMA = pa.schema(
    [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _VALUE, nullable=False)]
)
_STRING, _BOOL, _BIGINT, _INT32 = 0, 1, 2, 3


def sql_info(wanted: tuple[int, ...], *, transactions: bool) -> pa.Table:
    """The facts asked for, or all of them; a number that we have no fact for is left out."""
    facts = _facts(transactions)
    chosen = [number for number in (wanted or facts) if number in facts]
    children: list[list[object]] = [[] for _ in range(_VALUE.num_fields)]
    codes, offsets = [], []
    for number in chosen:
        code, value = facts[number]
        codes.append(code)
        offsets.append(len(children[code]))
        children[code].append(value)
    arrays = [pa.array(items, _VALUE.field(n).type) for n, items in enumerate(children)]
    values = pa.UnionArray.from_dense(
        pa.array(codes, pa.int8()),
        pa.array(offsets, pa.int32()),
        arrays,
        [_VALUE.field(n).name for n in range(_VALUE.num_fields)],
    )
    return pa.Table.from_arrays([pa.array(chosen, pa.uint32()), values], schema=SCHEMA)


def _facts(transactions: bool) -> dict[int, tuple[int, object]]:
    return {
        SERVER_NAME: (_STRING, "QueryFlux"),
        SERVER_VERSION: (_STRING, _version()),
        ARROW_VERSION: (_STRING, pa.__version__),
        READ_ONLY: (_BOOL, False),
        SQL: (_BOOL, True),
        SUBSTRAIT: (_BOOL, False),
        TRANSACTION: (_INT32, 1 if transactions else 0),
        CANCEL: (_BOOL, True),
        BULK_INGESTION: (_BOOL, False),
        STATEMENT_TIMEOUT: (_INT32, 0),
        TRANSACTION_TIMEOUT: (_INT32, 0),
        DDL_CATALOG: (_BOOL, False),
        DDL_SCHEMA: (_BOOL, True),
        DDL_TABLE: (_BOOL, True),
        IDENTIFIER_QUOTE_CHAR: (_STRING, '"'),
    }


def _version() -> str:
    try:
        return version("queryflux")
    except PackageNotFoundError:
        return "unknown"
