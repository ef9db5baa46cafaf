"""What a process takes from outside its loop, and what stands for that while a fleet is simulated: threads,
connections, chance, engines, and versions of snapshots that no program has yet.
"""

import asyncio
import gzip
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import patch

from queryflux.config.snapshot import SCHEMA_VERSION, revision_of_json
from queryflux.controlplane.publisher import Offer, Published
from queryflux.controlplane.publisher import _made as made_really
from queryflux.fleet import snapshot as wire
from tests.kit.scripted import ScriptedEngine
from tests.sim.network import Host, ModelServer
from tests.sim.world import ProcessLoop

T = TypeVar("T")
THREAD_SECS = 0.002
"""Mean time of a call on a thread."""
NEWER = "newer"
"""A cluster of this name makes a snapshot one of the next schema version."""


class ModelLane:
    """Stands for ``queryflux.runtime.threads.LaneThread``: each call is done by the loop, in order, a moment
    later."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        self._loop = loop
        self._free_at = 0.0

    def submit(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """As LaneThread."""
        loop = self._loop
        future: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = function(*args)
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        start = max(loop.time(), self._free_at)
        self._free_at = start + loop.world.chance.expovariate(1 / THREAD_SECS)
        loop.call_at(self._free_at, call)
        return future

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """As LaneThread."""
        return await asyncio.shield(self.submit(function, *args))

    def close(self) -> None:
        """As LaneThread."""


def made(offer: Offer, now: float, monotonic: float) -> Published:
    """As a control plane of the next version would, where the configuration has what only that one knows."""
    published = made_really(offer, now, monotonic)
    if NEWER not in offer.snapshot.clusters:
        return published
    document = json.loads(published.body) | {"schemaVersion": SCHEMA_VERSION + 1}
    content = {key: value for key, value in document.items() if key not in wire.ENVELOPE}
    revision = revision_of_json(content)
    body = json.dumps(document | {"revision": revision}).encode()
    return replace(published, revision=revision, body=body, zipped=gzip.compress(body, 1, mtime=0))


def _read(data: bytes) -> wire.WorkerSnapshot:
    """As this host's version can."""
    host = asyncio.get_running_loop()
    assert isinstance(host, Host)
    with patch.object(wire, "SCHEMA_VERSION", host.schema_version):
        try:
            return wire.read(data)
        except wire.SnapshotRefused as error:
            if host.schema_version == 1 or error.reason is not wire.Refusal.SCHEMA:
                raise
    return wire.read(data)  # a newer program reads older documents


@contextmanager
def virtual(seed: int) -> Iterator[None]:
    """Nothing real is used meanwhile, and chance begins with ``seed``."""
    before = random.getstate()
    random.seed(seed)
    with ExitStack() as stack:
        for place, stand_in in (
            ("queryflux.runtime.threads.LaneThread", ModelLane),
            ("queryflux.worker.client.Server", ModelServer),
            ("queryflux.worker.peers.Server", ModelServer),
            ("queryflux.worker.offer.read", _read),
            ("queryflux.controlplane.publisher._made", made),
            ("queryflux.app.compile.MOST_AT_ONCE_SECS", float("inf")),
            ("queryflux.app.compile.build_engine", lambda name, config, clock: ScriptedEngine(name)),
            ("queryflux.pipeline.health.Random", lambda: random.Random(random.random())),
        ):
            stack.enter_context(patch(place, stand_in))
        try:
            yield
        finally:
            random.setstate(before)
