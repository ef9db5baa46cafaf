"""An engine that does nothing but count: a process of its own, which processes of the fleet tell over TCP.

Lines of words. A process of the fleet begins with ``hello INSTANCE`` and says ``s CLUSTER ID BEGAN`` and
``e ID``; what runs when its connection ends goes on for LINGER_SECS, as queries of a client that died do.
Whoever makes faults says ``cap``, ``settled``, ``excuse``, and ``state`` for a report in JSON. Each turn's
messages of a connection are answered by one line with their number.
"""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import uvloop

from tests.chaos.judge import Judge

LINGER_SECS = 1.0


class Door(asyncio.Protocol):
    """One connection."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._instance = ""
        self._running: set[str] = set()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        *lines, self._rest = (self._rest + data).split(b"\n")
        done = 0
        for line in lines:
            words = line.decode().split(" ")
            if words[0] == "state":
                self._transport.write(json.dumps(report(self._judge)).encode() + b"\n")
            else:
                self._take(words)
                done += 1
        if done:
            self._transport.write(b"%d\n" % done)

    def _take(self, words: Sequence[str]) -> None:
        judge = self._judge
        match words:
            case ["s", cluster, query_id, began]:
                self._running.add(query_id)
                judge.start(cluster, query_id, self._instance, float(began))
            case ["e", query_id]:
                self._running.discard(query_id)
                judge.end(query_id)
            case ["hello", instance]:
                self._instance = instance
            case ["cap", cluster, value]:
                judge.cap(cluster, int(value))
            case ["settled", cluster, now]:
                judge.settled(cluster, float(now))
            case ["excuse", cause, instance, until]:
                judge.excuse(cause, instance or None, float(until))
            case _:
                raise ValueError(f"what is {words}?")

    def connection_lost(self, error: Exception | None) -> None:
        loop = asyncio.get_running_loop()
        for query_id in self._running:
            loop.call_later(LINGER_SECS, partial(self._judge.end, query_id))


def report(judge: Judge) -> dict[str, object]:
    """What there is to say."""
    return {
        "starts": judge.starts,
        "running": {name: len(cluster.running) for name, cluster in judge.clusters.items()},
        "ids": [query_id for cluster in judge.clusters.values() for query_id in cluster.running],
        "caps": {name: max(cap.value for cap in cluster.caps) for name, cluster in judge.clusters.items()},
        "most": {name: cluster.most for name, cluster in judge.clusters.items()},
        "most_counted": {name: cluster.most_counted for name, cluster in judge.clusters.items()},
        "starts_of": {name: cluster.starts for name, cluster in judge.clusters.items()},
        "over": dict(judge.over),
        "violated": judge.violated,
        "violations": judge.violations,
    }


async def serve(caps: dict[str, int]) -> None:
    """Say the port, and count until standard input ends."""
    judge = Judge(caps)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Door(judge), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


class EngineLink(asyncio.Protocol):
    """A process's own connection to the engine. Messages of one turn of the loop travel together."""

    def __init__(self, instance: str, lost: Callable[[], object]) -> None:
        self._instance = instance
        self._lost = lost
        self._out: list[str] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.tell("hello", self._instance)

    def tell(self, *words: str) -> "asyncio.Future[None]":
        """Done when the engine has heard it."""
        loop = asyncio.get_running_loop()
        if not self._out:
            loop.call_soon(self._flush)
        self._out.append(" ".join(words) + "\n")
        heard: asyncio.Future[None] = loop.create_future()
        self._waiting.append(heard)
        return heard

    def _flush(self) -> None:
        assert self._transport is not None
        self._transport.write("".join(self._out).encode())
        self._out.clear()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            for _ in range(int(line)):
                heard = self._waiting.popleft()
                if not heard.done():
                    heard.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()


async def connect_engine(port: int, instance: str, lost: Callable[[], object]) -> EngineLink:
    """A link to the engine; ``lost`` is called when it ends."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: EngineLink(instance, lost), "127.0.0.1", port)
    return link


if __name__ == "__main__":
    uvloop.run(serve(json.loads(sys.argv[1])))
