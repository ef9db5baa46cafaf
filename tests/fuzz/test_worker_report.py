"""Any bytes are a worker's report or refused as none, and a report that is one can be shown."""

import contextlib
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from queryflux.fleet.registry import RowState, WorkerRow, decode_heartbeat, encode_heartbeat
from tests.fuzz.test_admin_api import VALUES, mutated
from tests.rooms.fleet.test_registry import FULL

DOCUMENT: dict[str, Any] = json.loads(encode_heartbeat(FULL))


def refused_or_read(data: bytes) -> None:
    report = None
    with contextlib.suppress(ValueError):
        report = decode_heartbeat(data)
    if report is not None:
        assert decode_heartbeat(encode_heartbeat(report)) == report
        row = WorkerRow(report=report, registered_secs=1.0, seen_secs=1.0)
        assert row.state in (RowState.ONLINE, RowState.OFFLINE)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"\xff")
@example(b'{"instanceId":"i","workerName":"w","x":' + b'{"x":' * 100_000)
def test_any_bytes(data: bytes) -> None:
    refused_or_read(data)


@settings(max_examples=300, deadline=None)
@given(mutated(DOCUMENT))
def test_any_change_of_a_report(changed: Any) -> None:
    refused_or_read(json.dumps(changed).encode())


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(DOCUMENT)), VALUES)
def test_any_value_of_a_field(name: str, value: Any) -> None:
    refused_or_read(json.dumps({**DOCUMENT, name: value}).encode())
