"""History sent to the control plane, or to another endpoint that speaks as one does.

A batch that is answered has been dealt with; whatever else happens it is sent again, and who keeps the
records leaves out those that it has. A batch that is too large is halved.
"""

import zlib
from collections.abc import Sequence

import msgspec

from queryflux.fleet.history import Ingested, encode_batch
from queryflux.fleet.paths import HISTORY
from queryflux.history.batches import Outcome
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import RecordsRefused, StoreUnavailable
from queryflux.runtime.threads import in_thread
from queryflux.worker.port import ControlPlane, Reply

SECONDS = 30.0
"""So long a batch may take to be answered."""
COMPRESSED_FROM = 4 << 10
_LEVEL = 1
_JSON = "application/json"


class HistoryUplink:
    """Batches of one process's records, to where they are kept."""

    def __init__(self, control_plane: ControlPlane, worker: str, instance_id: str) -> None:
        """``worker`` is the stable name that history knows the records by."""
        self._control_plane = control_plane
        self._worker = worker
        self._instance_id = instance_id

    async def send(self, records: Sequence[StoredQuery]) -> Outcome:
        """A batch (``history.batches.Send``). Raises StoreUnavailable, RecordsRefused."""
        body = encode_batch(self._worker, self._instance_id, records)
        headers = {"content-type": _JSON}
        if len(body) >= COMPRESSED_FROM:
            body = await in_thread("history", _compressed, body)
            headers["content-encoding"] = "gzip"
        reply = await self._control_plane.call("POST", HISTORY, body, headers=headers, seconds=SECONDS)
        if reply.status == 413:
            raise RecordsRefused("the batch is too large for the control plane")
        if reply.status != 200:
            raise StoreUnavailable(f"the control plane does not take history: {_said(reply)}")
        try:
            ingested = msgspec.json.decode(reply.body, type=Ingested)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StoreUnavailable("the answer about history is not understood") from error
        return Outcome(ingested.stored, ingested.duplicates, ingested.rejected)


def _compressed(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""


def _said(reply: Reply) -> str:
    """What is wrong, as the answer has it."""
    try:
        problem = msgspec.json.decode(reply.body, type=_Problem)
    except (msgspec.DecodeError, RecursionError):
        problem = _Problem()
    words = ": ".join(filter(None, (problem.code, problem.detail)))
    return f"{reply.status} {words}" if words else f"it answers {reply.status}"
