"""A control plane whose every answer is a test's, and what it answers with."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from queryflux.config.clusters import ClusterConfig
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.snapshot import Snapshot, revision_of_json
from queryflux.fleet import snapshot as wire
from queryflux.fleet.snapshot import CONFIRMED_AGE, EPOCH, MEDIA_TYPE, SEQUENCE, WorkerSnapshot, read
from queryflux.worker.port import NO_HEADERS, Reply
from tests.kit.clock import settle

EPOCH_1 = "11111111-1111-1111-1111-111111111111"
EPOCH_2 = "22222222-2222-2222-2222-222222222222"


def configuration(name: str) -> Snapshot:
    """A configuration like no other of another name."""
    return Snapshot(
        clusters={name: ClusterConfig(engine="duckDb")},
        cluster_groups={name: ClusterGroupConfig(members=(name,))},
        routing_fallback=name,
    )


def document(name: str, sequence: int, epoch: str = EPOCH_1, **more: Any) -> WorkerSnapshot:
    """What carries ``configuration(name)``, with ``more`` fields that a later version has."""
    _, data = wire.build(
        configuration(name), epoch=epoch, sequence=sequence, generated_at=1.8e9, confirmed_at=1.8e9
    )
    if more:
        whole = json.loads(data) | more
        content = {key: value for key, value in whole.items() if key not in wire.ENVELOPE}
        data = json.dumps(whole | {"revision": revision_of_json(content)}).encode()
    return read(data)


def about(revision: str, epoch: str, sequence: int, age: float = 0.0, **more: str) -> dict[str, str]:
    """The headers of an answer about a configuration."""
    return {
        "etag": f'"{revision}"',
        EPOCH.lower(): epoch,
        SEQUENCE.lower(): str(sequence),
        CONFIRMED_AGE.lower(): f"{age:.3f}",
        **more,
    }


def sent(snapshot: WorkerSnapshot, age: float = 0.0) -> Reply:
    """A document, as it is answered."""
    headers = about(snapshot.revision, snapshot.epoch, snapshot.sequence, age)
    return Reply(200, headers | {"content-type": MEDIA_TYPE}, snapshot.data)


def unchanged(revision: str, sequence: int, epoch: str = EPOCH_1, age: float = 0.0) -> Reply:
    """Nothing new: this is what there is."""
    return Reply(304, about(revision, epoch, sequence, age), b"")


class Asked:
    """A call that waits for its answer."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], seconds: float) -> None:
        parts = urlsplit(path)
        self.method = method
        self.path = parts.path
        self.params = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.headers = dict(headers)
        self.seconds = seconds
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()


class Plane:
    """Implements ``ControlPlane``."""

    def __init__(self) -> None:
        self.calls: list[Asked] = []

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        asked = Asked(method, path, headers, seconds)
        self.calls.append(asked)
        return await asked.answer

    @property
    def asked(self) -> Asked:
        """The one call that waits."""
        (waiting,) = [call for call in self.calls if not call.answer.done()]
        return waiting

    @property
    def idle(self) -> bool:
        """No call waits."""
        return all(call.answer.done() for call in self.calls)

    async def reply(self, reply: Reply) -> None:
        """Answer it, and let that have its effect."""
        self.asked.answer.set_result(reply)
        await settle()

    async def fail(self, error: Exception) -> None:
        """Have it fail."""
        self.asked.answer.set_exception(error)
        await settle()
