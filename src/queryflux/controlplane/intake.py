"""POST /worker/history: records of queries that workers ran, into the history that this process reads.

A batch is answered once its records are stored, those that are new and those that were there; a record that
cannot be kept is counted and holds up no other. Nothing is counted in this process's metrics of queries: the
worker has done that.
"""

import logging
import zlib
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from queryflux.controlplane.errors import TooLarge
from queryflux.controlplane.worker_app import WorkerAnswer, WorkerCall, WorkerEndpoint
from queryflux.fleet.history import Ingested, Received, decode_batch
from queryflux.fleet.paths import HISTORY
from queryflux.history.batches import add_isolating
from queryflux.history.port import HistoryStore
from queryflux.history.redaction import in_turns
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import InvalidRequest
from queryflux.runtime.threads import in_thread

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 << 20
MAX_PLAIN_BYTES = 32 << 20
"""Of a batch that came compressed."""
REMEMBERED = 50_000
"""Of those that were stored, the last ones: what comes again because its acknowledgement was lost is left
out before it costs anything."""
_LARGE, _LARGE_PACKED = 1 << 20, 128 << 10
"""Bodies from which on the loop is not held up by them."""


class HistoryIntake:
    """Takes workers' records."""

    def __init__(
        self, store: Callable[[], HistoryStore], admitted: Callable[[StoredQuery], StoredQuery]
    ) -> None:
        """``store`` gives where history is kept now; ``admitted`` makes of a record what may be kept of it: a
        worker may not have heard yet that this is less than before."""
        self._store = store
        self._admitted = admitted
        self._stored: dict[str, None] = {}

    def endpoints(self) -> list[WorkerEndpoint]:
        """What the worker API has of it."""
        return [WorkerEndpoint("POST", HISTORY, self._take, max_body=MAX_BODY_BYTES, packed=True)]

    async def _take(self, call: WorkerCall) -> WorkerAnswer:
        packed = call.headers.get("content-encoding", "identity").lower()
        received = (
            await in_thread("history", _read, call.body, packed)
            if len(call.body) >= (_LARGE if packed == "identity" else _LARGE_PACKED)
            else _read(call.body, packed)
        )
        new = [record for record in received.records if record.proxy_query_id not in self._stored]
        records = await in_turns(new, self._admitted)
        lost = received.refused + len(new) - len(records)
        if received.refused:
            log.error("%d records that %s sent cannot be understood", received.refused, call.peer)
        stored, duplicates, rejected = await add_isolating(self._store(), records)
        if not rejected:
            self._remember(records)
        answer = Ingested(
            stored=stored,
            duplicates=duplicates + len(received.records) - len(new),
            rejected=rejected + lost,
        )
        return WorkerAnswer(body=msgspec.json.encode(answer))

    def _remember(self, records: Sequence[StoredQuery]) -> None:
        self._stored |= dict.fromkeys(record.proxy_query_id for record in records)
        for oldest in list(islice(self._stored, max(0, len(self._stored) - REMEMBERED))):
            del self._stored[oldest]


def _read(body: bytes, packed: str) -> Received:
    if packed == "gzip":
        return decode_batch(_unpacked(body))
    if packed != "identity":
        raise InvalidRequest(f"a body in {packed!r} is not understood", hint="send gzip, or none")
    return decode_batch(body)


def _unpacked(body: bytes) -> bytes:
    """Raises TooLarge, InvalidRequest."""
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(body, MAX_PLAIN_BYTES + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is no gzip: {error}") from None
    if len(plain) > MAX_PLAIN_BYTES:
        raise TooLarge(f"the body unpacks to over {MAX_PLAIN_BYTES} bytes", hint="send less at a time")
    if not unpacker.eof:
        raise InvalidRequest("the body is no gzip: it ends too early")
    return plain
