"""QueryRecordBatchV1: records of queries that have ended, on their way from a worker to who keeps them.

A record travels as it is stored, with names of clusters and groups, not ids. Who ran the queries stands in
the batch, and not in the call that carries it: somebody may pass on what others have collected.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import force_setattr

from queryflux.fleet.registry import Name
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import InvalidRequest, RecordsRefused

SCHEMA_VERSION = 1
MOST_RECORDS = 10_000
"""Of one batch."""


class UnknownSchemaVersion(InvalidRequest):
    """The batch is of a version that this program does not know."""

    code = "UNKNOWN_SCHEMA_VERSION"


class QueryRecordBatchV1(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a worker sends. A reader tolerates fields that it does not know."""

    schema_version: int = SCHEMA_VERSION
    worker_name: Name
    instance_id: Name
    records: Annotated[Sequence[StoredQuery], Meta(max_length=MOST_RECORDS)]


class Received(NamedTuple):
    """The records of a batch, with the worker's names in each, and how many more cannot be understood."""

    records: list[StoredQuery]
    refused: int


class Ingested(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer: records that are new, that were there already, and that cannot be kept."""

    stored: int
    duplicates: int
    rejected: int


class _Version(Struct, rename="camel"):
    schema_version: int


class _Pieces(Struct, rename="camel"):
    """A batch of which some records cannot be understood."""

    worker_name: Name
    instance_id: Name
    records: Annotated[list[Raw], Meta(max_length=MOST_RECORDS)]


_encoder = msgspec.json.Encoder()
_version = msgspec.json.Decoder(_Version)
_batch = msgspec.json.Decoder(QueryRecordBatchV1)
_pieces = msgspec.json.Decoder(_Pieces)
_record = msgspec.json.Decoder(StoredQuery)
_NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeError, RecursionError)


def encode_batch(worker: str, instance_id: str, records: Sequence[StoredQuery]) -> bytes:
    """A batch of one process's records. Raises RecordsRefused when a record has no JSON."""
    batch = QueryRecordBatchV1(worker_name=worker, instance_id=instance_id, records=records)
    try:
        return _encoder.encode(batch)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordsRefused(f"not to be written as JSON: {type(error).__name__}") from None


def decode_batch(body: bytes) -> Received:
    """The records of a batch. Raises UnknownSchemaVersion, InvalidRequest."""
    try:
        batch = _batch.decode(body)
    except _NOT_UNDERSTOOD:
        return _decode_pieces(body)
    _check_version(batch.schema_version)
    return Received([_kept(one, batch.worker_name, batch.instance_id) for one in batch.records], 0)


def _decode_pieces(body: bytes) -> Received:
    """One record after the other: those that can be understood."""
    try:
        _check_version(_version.decode(body).schema_version)
        pieces = _pieces.decode(body)
    except _NOT_UNDERSTOOD as error:
        raise InvalidRequest(f"not a batch of query records: {_reason(error)}") from None
    records: list[StoredQuery] = []
    for raw in pieces.records:
        try:
            records.append(_kept(_record.decode(raw), pieces.worker_name, pieces.instance_id))
        except _NOT_UNDERSTOOD:
            continue
    return Received(records, len(pieces.records) - len(records))


def _check_version(version: int) -> None:
    if version != SCHEMA_VERSION:
        raise UnknownSchemaVersion(
            f"query records of schema version {version} are not known here, only {SCHEMA_VERSION}",
            hint="upgrade the control plane before its workers",
        )


def _kept(record: StoredQuery, worker: str, instance_id: str) -> StoredQuery:
    """Nobody else has it yet."""
    force_setattr(record, "worker", worker)
    force_setattr(record, "instance_id", instance_id)
    return record


def _reason(error: Exception) -> str:
    """What is wrong, without what the batch says."""
    return str(error) if isinstance(error, msgspec.ValidationError) else "it is no JSON"
