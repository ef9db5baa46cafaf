"""Whatever a coordinator answers: batches, or an error of ours; nothing else."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.trino.batches import read_page
from queryflux.engines.trino.client import Client
from queryflux.engines.trino.columns import Columns
from queryflux.engines.trino.pages import decode_page, next_uri_of
from queryflux.engines.trino.statement import TrinoStatement, Way
from queryflux.engines.trino.target import target
from queryflux.engines.trino.types import from_signature, from_text
from queryflux.model.errors import EngineConnectionLost, EngineError, QueryFluxError
from queryflux.results.answer import EngineStats
from queryflux.runtime.clock import SystemClock
from queryflux.runtime.tasks import TaskGroup

TYPES = (
    "boolean", "tinyint", "bigint", "real", "double", "decimal(5,2)", "varchar", "varbinary", "json", "date",
    "uuid", "time(3)", "time(12)", "timestamp(3)", "timestamp(12)", "timestamp(3) with time zone", "unknown",
    "Geometry", "interval day to second", "interval year to month", "array(date)", "map(bigint, double)",
    "row(a integer, b uuid)",
)  # fmt: skip
DAY = r"[+-]?[0-9]{1,5}-[0-9]{2}-[0-9]{2}"
HOUR = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,12})?"
TEXTS = st.one_of(
    st.text(max_size=20),
    st.from_regex(rf"{DAY}( {HOUR}( [A-Za-z/+:0-9]{{1,9}})?)?", fullmatch=True),
    st.from_regex(r"-?[0-9]{1,12}( [0-9:.]{1,12})?", fullmatch=True),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "rawType", "arguments", "kind", "value", "typeSignature", "fieldName", "name", "id", "nextUri", "columns",
    "data", "error", "stats", "type",
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(TYPES), st.lists(VALUES, max_size=4))
def test_any_values_are_a_column_or_an_error(kind: str, values: list[object]) -> None:
    data = json.dumps([[value] for value in values]).encode()
    try:
        batch = Columns(["c"], [from_text(kind)]).batch(data)
    except (EngineConnectionLost, EngineError):
        return
    batch.validate(full=True)
    assert batch.num_rows == len(values)


@given(JSON | st.binary(max_size=200))
def test_any_document_is_a_page_or_an_error(document: object) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document, separators=(",", ":")).encode()
    uri = next_uri_of(body)
    config = ClusterConfig(engine="trino", endpoint="http://h:1")
    client = Client(target("t", config), SystemClock())
    statement = TrinoStatement(Way(client, SystemClock(), TaskGroup("t")), ())
    try:
        page = read_page(statement, body, "SELECT 1", EngineStats())
    except QueryFluxError:
        return
    assert uri is None or page.next_uri == uri
    assert decode_page(body).next_uri == page.next_uri


@given(JSON, st.text(max_size=40))
def test_any_type_is_read_or_an_error(document: object, text: str) -> None:
    from_text(text)
    try:
        kind = from_signature(msgspec.json.encode(document), text)
        Columns(["c"], [kind])
    except EngineConnectionLost:
        return
