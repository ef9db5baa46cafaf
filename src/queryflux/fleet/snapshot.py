"""WorkerSnapshotV1: one whole configuration as one JSON document, from a control plane to its workers and
from worker to worker.

    {"schemaVersion": 1, "revision": "<16 hex>", "epoch": "...", "sequence": 7,
     "generatedAt": "2026-01-31T12:00:00.000Z", "confirmedAt": "...",
     "credentials": "embedded", "clusters": {...}, "clusterGroups": {...}, "routers": [...],
     "routingFallback": "...", "translation": {...}, "scripts": ...,
     "settings": {"guardrails", "security": {"auth", "authorization"}, "catalog", "accessControl",
     "guardScripts"}, "queryHistory": {...}}

Everything except ``ENVELOPE`` is the content (config/snapshot.py): the revision is its hash, over the generic
JSON as it was received, so that fields of a later version are covered and can be handed on. What has its
default is left out. Times are RFC 3339 in UTC and say when the document was made; how old its confirmation is
by now travels beside it, as a duration (``CONFIRMED_AGE``), for clocks need not agree.

Order: revisions have none. A process takes a document of a new ``epoch`` or a higher ``sequence``; the same
revision again is only noted.

Credentials are inside: a document is for memory and TLS, never for a log. Files that engines are configured
with (``caFile`` and the like) travel as the paths they are, and are looked for where the document is used.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn

from queryflux.config.snapshot import CREDENTIALS, SCHEMA_VERSION, Snapshot, content_of, revision_of_json
from queryflux.model.errors import ConfigError

MEDIA_TYPE = "application/vnd.queryflux.worker-config.v1+json"
CONFIRMED_AGE = "X-QueryFlux-Confirmed-Age"
"""Header: seconds since the store was last seen to say this."""
EPOCH = "X-QueryFlux-Config-Epoch"
SEQUENCE = "X-QueryFlux-Config-Sequence"
"""Headers: where the revision that the answer speaks of (its ETag) stands in order."""

ENVELOPE = frozenset(("revision", "epoch", "sequence", "generatedAt", "confirmedAt", "signature"))
"""What is said about the content."""

MAX_BYTES = 32 * 1024 * 1024
"""Of a document, not compressed."""
MAX_DEPTH = 64
MAX_EPOCH_LENGTH = 100
MAX_SEQUENCE = 2**63 - 1
_REVISION = re.compile(r"[0-9a-f]{16}\Z")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)


class Refusal(StrEnum):
    """Why a document is not taken, before anybody looks at the configuration in it."""

    TOO_LARGE = "tooLarge"
    MALFORMED = "malformed"
    SCHEMA = "schemaVersion"
    CREDENTIALS = "credentials"
    SIGNATURE = "signature"
    REVISION = "revision"


class SnapshotRefused(ConfigError):
    """A document cannot be used; ``reason`` says why, for programs, and ``schema_version`` which one it has,
    if it says so."""

    code = "SNAPSHOT_REFUSED"

    def __init__(
        self, reason: Refusal, message: str, *, hint: str = "", schema_version: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.schema_version = schema_version


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """A document that was received, is whole, and is of a version that this one knows. ``data`` is what came,
    to be handed on as it is; times are seconds since the epoch by the clock of whoever made it."""

    revision: str
    epoch: str
    sequence: int
    generated_at: float
    confirmed_at: float
    content: Mapping[str, Any]
    data: bytes

    def __repr__(self) -> str:
        return f"WorkerSnapshot({self.revision!r}, {self.epoch!r}, {self.sequence})"


def build(
    snapshot: Snapshot, *, epoch: str, sequence: int, generated_at: float, confirmed_at: float
) -> tuple[str, bytes]:
    """The revision of a configuration, and the document that carries it. Raises ValueError when it has what
    no JSON can hold, or is larger than a worker takes."""
    content = content_of(snapshot)
    revision = revision_of_json(content)
    envelope = {
        "schemaVersion": content["schemaVersion"],
        "revision": revision,
        "epoch": epoch,
        "sequence": sequence,
        "generatedAt": rfc3339(generated_at),
        "confirmedAt": rfc3339(confirmed_at),
    }
    document = {**envelope, **content}
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"the document would have {len(data)} bytes; workers take {MAX_BYTES}")
    return revision, data


def read(data: bytes) -> WorkerSnapshot:
    """The document in ``data``. What version it is of is looked at before anything else in it. Raises
    SnapshotRefused."""
    document = _json(data)
    _version(document)
    _credentials(document)
    content = {key: value for key, value in document.items() if key not in ENVELOPE}
    revision = document.get("revision")
    if not isinstance(revision, str) or not _REVISION.match(revision):
        raise _malformed("revision is not 16 hexadecimal digits")
    try:
        actual = revision_of_json(content)
    except ValueError as error:
        raise _malformed(f"it cannot be hashed: {type(error).__name__}") from None
    if actual != revision:
        raise SnapshotRefused(
            Refusal.REVISION,
            f"the snapshot calls itself {revision}, its content is {actual}: it was changed on its way",
            hint="look for a proxy between worker and control plane that rewrites bodies",
        )
    return WorkerSnapshot(
        revision,
        _epoch(document.get("epoch")),
        _sequence(document.get("sequence")),
        _moment(document, "generatedAt"),
        _moment(document, "confirmedAt"),
        content,
        data,
    )


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch, in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        message = f"the snapshot has {len(data)} bytes; at most {MAX_BYTES} are taken"
        raise SnapshotRefused(Refusal.TOO_LARGE, message)
    try:
        document = json.loads(data.decode(), parse_constant=_no_constant)  # keeps integers exact
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    if not isinstance(document, dict):
        raise _malformed("it is not an object")
    if _too_deep(document):
        raise _malformed(f"it is nested more than {MAX_DEPTH} levels deep")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _version(document: Mapping[str, Any]) -> None:
    version = document.get("schemaVersion")
    if type(version) is not int:
        raise _malformed("it has no schemaVersion")
    if version != SCHEMA_VERSION:
        raise SnapshotRefused(
            Refusal.SCHEMA,
            f"the snapshot has schema version {version}; this worker knows {SCHEMA_VERSION}",
            hint="upgrade this worker" if version > SCHEMA_VERSION else "upgrade the control plane",
            schema_version=version,
        )


def _credentials(document: Mapping[str, Any]) -> None:
    mode = document.get("credentials")
    if mode != CREDENTIALS:
        raise SnapshotRefused(
            Refusal.CREDENTIALS,
            f"this worker takes snapshots with credentials {CREDENTIALS!r}, and this one has {_said(mode)}",
            hint="upgrade this worker, or let the control plane embed credentials",
        )
    if document.get("signature") is not None:
        raise SnapshotRefused(
            Refusal.SIGNATURE,
            "the snapshot is signed in a way that this worker cannot check",
            hint="upgrade this worker, or let the control plane send snapshots without a signature",
        )


def _said(value: Any) -> str:
    return f"{value[:40]!r}" if isinstance(value, str) else "another" if value is not None else "none"


def _epoch(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_EPOCH_LENGTH:
        raise _malformed("epoch is no name of an epoch")
    return value


def _sequence(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_SEQUENCE:
        raise _malformed("sequence is no whole number from 0")
    return value


def _moment(document: Mapping[str, Any], key: str) -> float:
    text = document.get(key)
    if isinstance(text, str) and _MOMENT.match(text):
        try:
            return datetime.fromisoformat(text.upper()).timestamp()
        except (ValueError, OverflowError):
            pass  # the 31st of February
    raise _malformed(f"{key} is no time of RFC 3339")


def _malformed(what: str) -> SnapshotRefused:
    hint = "look at what answers under controlPlane.url: is it a control plane?"
    return SnapshotRefused(Refusal.MALFORMED, f"the snapshot cannot be read: {what}", hint=hint)
