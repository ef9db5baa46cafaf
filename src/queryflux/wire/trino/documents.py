"""The JSON documents of the client protocol ("QueryResults"), built from parts that are JSON already."""

from dataclasses import dataclass

import msgspec

from queryflux.wire.trino.codes import NUMBERS, error_type

_json = msgspec.json.Encoder().encode

_BIGINT = b'{"name":"rows","type":"bigint","typeSignature":{"rawType":"bigint","arguments":[]}}'


@dataclass(slots=True)
class Stats:
    """What clients show of progress. ``state`` is QUEUED, RUNNING, FINISHED or FAILED; times are ms."""

    state: str
    elapsed: int = 0
    queued: int = 0
    cpu: int = 0
    processed_rows: int = 0
    processed_bytes: int = 0
    input_bytes: int = 0
    peak_memory: int = 0
    spilled: int = 0
    splits: int = 0

    def encode(self) -> bytes:
        """The value of ``stats``."""
        waiting, over = self.state == "QUEUED", self.state in ("FINISHED", "FAILED")
        splits = max(self.splits, 1)
        running = 1 if self.state == "RUNNING" else 0
        completed = splits if self.state == "FINISHED" else 0
        progress = b',"progressPercentage":100.0' if self.state == "FINISHED" else b""
        return (
            b'{"state":"%b","queued":%b,"scheduled":%b%b,"nodes":%d,"totalSplits":%d,"queuedSplits":%d,'
            b'"runningSplits":%d,"completedSplits":%d,"cpuTimeMillis":%d,"wallTimeMillis":%d,'
            b'"queuedTimeMillis":%d,"elapsedTimeMillis":%d,"processedRows":%d,"processedBytes":%d,'
            b'"physicalInputBytes":%d,"physicalWrittenBytes":0,"peakMemoryBytes":%d,"spilledBytes":%d}'
        ) % (
            self.state.encode(),
            b"true" if waiting else b"false",
            b"false" if waiting else b"true",
            progress,
            0 if waiting else 1,
            splits,
            splits - running - completed if not over else 0,
            running,
            completed,
            self.cpu,
            self.elapsed - self.queued,
            self.queued,
            self.elapsed,
            self.processed_rows,
            self.processed_bytes,
            self.input_bytes,
            self.peak_memory,
            self.spilled,
        )


@dataclass(frozen=True, slots=True)
class Update:
    """The outcome of a statement without a result set: its kind, and how many rows it touched."""

    kind: str
    count: int | None = None

    def encode(self) -> bytes:
        """``columns``, ``data``, ``updateType`` and ``updateCount``, as Trino has them."""
        kind = _json(self.kind)
        if self.count is None:
            return b'"columns":[],"updateType":%b,' % kind
        return b'"columns":[%b],"data":[[%d]],"updateType":%b,"updateCount":%d,' % (
            _BIGINT,
            self.count,
            kind,
            self.count,
        )


def results(
    query_id: str,
    info: bytes,
    stats: Stats,
    *,
    following: bytes | None = None,
    columns: bytes | None = None,
    rows: list[bytes] | None = None,
    update: Update | None = None,
    error: bytes | None = None,
) -> bytes:
    """One page. ``rows`` are parts of ``data``, each ``[...],[...]``."""
    parts = [b'{"id":"', query_id.encode(), b'","infoUri":"', info, b'",']
    if following is not None:
        parts += (b'"nextUri":"', following, b'",')
    if update is not None:
        parts.append(update.encode())
    elif columns is not None:
        parts += (b'"columns":', columns, b",")
        if rows:
            parts += (b'"data":[', b",".join(rows), b"],")
    parts += (b'"stats":', stats.encode())
    if error is not None:
        parts += (b',"error":', error)
    parts.append(b',"warnings":[]}')
    return b"".join(parts)


def error(
    name: str,
    message: str,
    *,
    location: tuple[int, int] | None = None,
    kind: str = "queryflux.QueryFluxError",
) -> bytes:
    """The value of ``error``: ``name`` is one of codes.NUMBERS, ``location`` line and column from 1."""
    number = NUMBERS[name]
    where = {"lineNumber": location[0], "columnNumber": location[1]} if location is not None else None
    info = {"code": number, "name": name, "type": error_type(number)}
    failure = {"type": kind, "message": message, "suppressed": [], "stack": [], "errorInfo": info}
    document = {
        "message": message,
        "errorCode": number,
        "errorName": name,
        "errorType": error_type(number),
        "failureInfo": failure,
    }
    if where is not None:
        document["errorLocation"] = failure["errorLocation"] = where
    return _json(document)


def problem(name: str, message: str) -> bytes:
    """The body of a response that is not 200: the error alone."""
    return b'{"error":%b}' % error(name, message)
