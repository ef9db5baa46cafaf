"""QueryRecordBatchV1: what travels, what is tolerated, what is refused."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import fields, replace

from queryflux.fleet.history import (
    MOST_RECORDS,
    UnknownSchemaVersion,
    decode_batch,
    encode_batch,
)
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import InvalidRequest, RecordsRefused
from tests.contract.test_history_store import FULL
from tests.kit.records import stored


def document(*records: StoredQuery) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(encode_batch("edge", "qf-1", records))
    return made


def test_a_batch_is_versioned_says_who_sends_it_and_is_spelled_as_json_is() -> None:
    batch = document(stored(7, cluster_group="bi"), FULL)
    assert batch.keys() == {"schemaVersion", "workerName", "instanceId", "records"}
    assert (batch["schemaVersion"], batch["workerName"], batch["instanceId"]) == (1, "edge", "qf-1")
    short, full = batch["records"]
    assert short == {
        "proxyQueryId": "q7",
        "clusterGroup": "bi",
        "frontendProtocol": "TrinoHttp",
        "username": "ann",
        "sqlText": "SELECT 7",
        "status": "Success",
        "reason": "completed",
        "executionDurationMs": 1.0,
        "createdAt": stored(7).created_at,
    }
    assert full.keys() == set(StoredQuery.__struct_encode_fields__)


def test_records_come_back_as_they_went_with_the_names_of_the_batch() -> None:
    received = decode_batch(encode_batch("edge", "qf-1", [FULL, stored(7)]))
    assert received.refused == 0
    assert received.records == [
        replace(record, worker="edge", instance_id="qf-1") for record in (FULL, stored(7))
    ]
    assert {type(record) for record in received.records} == {StoredQuery}


def test_what_is_left_out_means_the_same_for_ever() -> None:
    """Another version reads it: no default may change."""
    defaults = {field.encode_name: field.default for field in fields(StoredQuery) if not field.required}
    assert {key: value for key, value in defaults.items() if value is not None} == {
        "clusterGroup": "",
        "clusterName": "",
        "engineType": "",
        "sourceDialect": "",
        "targetDialect": "",
        "wasTranslated": False,
        "queueDurationMs": 0.0,
        "executionDurationMs": 0.0,
    }


def test_a_record_cannot_name_another_worker_than_its_batch() -> None:
    batch = document(stored(1))
    batch["records"][0] |= {"worker": "other", "instanceId": "other"}
    (record,) = decode_batch(msgspec.json.encode(batch)).records
    assert (record.worker, record.instance_id) == ("edge", "qf-1")


def test_fields_that_are_not_known_are_passed_over() -> None:
    batch = document(stored(1)) | {"signedBy": "x"}
    batch["records"][0]["plan"] = {"a": 1}
    assert len(decode_batch(msgspec.json.encode(batch)).records) == 1


@pytest.mark.parametrize("records", [[], [{"another": "form"}], {"columns": []}])
def test_a_version_that_is_not_known_is_refused_by_its_name(records: object) -> None:
    batch = {"schemaVersion": 2, "records": records}
    if records == []:
        batch |= {"workerName": "edge", "instanceId": "qf-1"}
    with pytest.raises(UnknownSchemaVersion, match="schema version 2"):
        decode_batch(msgspec.json.encode(batch))


BAD: dict[str, dict[str, Any]] = {
    "no status": {"status": None},
    "a number that is text": {"rowsReturned": "7"},
    "no object": {},
}


@pytest.mark.parametrize("bad", BAD)
def test_a_record_that_is_not_understood_holds_up_no_other(bad: str) -> None:
    batch = document(stored(1), stored(2), stored(3))
    batch["records"][1] = batch["records"][1] | BAD[bad] if BAD[bad] else 7
    received = decode_batch(msgspec.json.encode(batch))
    assert [record.proxy_query_id for record in received.records] == ["q1", "q3"]
    assert received.refused == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"schemaVersion":1}',
        b'{"schemaVersion":1,"workerName":"","instanceId":"a","records":[]}',
        b'{"schemaVersion":1,"workerName":"a","instanceId":"b\\u0000","records":[]}',
        b'{"schemaVersion":1,"workerName":"a","instanceId":"b","records":[%s]}'
        % b",".join([b"0"] * (MOST_RECORDS + 1)),
        b'{"schemaVersion":1,"workerName":"a","instanceId":"b","records":' + b"[" * 100_000,
    ],
    ids=range(10),
)
def test_what_is_no_batch_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a batch of query records"):
        decode_batch(body)


@pytest.mark.parametrize(
    "bad",
    [
        stored(1, sql_text="select '\ud800'"),
        stored(1, routing_trace=object()),
    ],
    ids=["surrogate", "object"],
)
def test_a_record_that_has_no_json_is_refused_without_quoting_it(bad: StoredQuery) -> None:
    with pytest.raises(RecordsRefused) as refused:
        encode_batch("edge", "qf-1", [stored(2), bad])
    assert "select" not in str(refused.value)
