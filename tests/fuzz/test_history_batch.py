"""Whatever bytes come as a batch of query records: records, or one error that says so."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from queryflux.fleet.history import decode_batch, encode_batch
from queryflux.model.errors import InvalidRequest
from tests.kit.records import stored

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "proxyQueryId", "status", "createdAt", "frontendProtocol", "sqlText", "rowsReturned", "queryTags",
    "routingTrace", "wasTranslated", "queryHash",
]  # fmt: skip


def decoded(body: bytes) -> int:
    """How many records there are in it, understood or not."""
    try:
        received = decode_batch(body)
    except InvalidRequest:
        return -1
    return len(received.records) + received.refused


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    decoded(body)


@given(st.data())
def test_a_batch_with_some_bytes_changed(data: st.DataObject) -> None:
    body = bytearray(encode_batch("edge", "qf-1", [stored(1), stored(2)]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    decoded(bytes(body))


@given(st.lists(JSON | st.dictionaries(st.sampled_from(KEYS), JSON, max_size=10), max_size=4))
def test_records_of_any_form_are_each_taken_or_refused(records: list[object]) -> None:
    batch = {"schemaVersion": 1, "workerName": "edge", "instanceId": "qf-1", "records": records}
    assert decoded(msgspec.json.encode(batch)) == len(records)
