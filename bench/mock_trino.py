"""A Trino coordinator that answers every statement at once with one complete document, in its own process.

python -m bench.mock_trino          prints its port, serves until its standard input closes
"""

import asyncio
import sys

import uvloop

from queryflux.runtime.bytestream import ByteStream
from queryflux.wire.http1 import RequestParser

DOCUMENT = (
    b'{"id":"20261129_213144_00042_abcde","infoUri":"http://127.0.0.1:%d/ui/query.html?'
    b'20261129_213144_00042_abcde","columns":[{"name":"_col0","type":"integer","typeSignature":'
    b'{"rawType":"integer","arguments":[]}}],"data":[[1]],"stats":{"state":"FINISHED","queued":false,'
    b'"scheduled":true,"progressPercentage":100.0,"runningPercentage":0.0,"nodes":1,"totalSplits":1,'
    b'"queuedSplits":0,"runningSplits":0,"completedSplits":1,"planningTimeMillis":1,"analysisTimeMillis":1,'
    b'"cpuTimeMillis":1,"wallTimeMillis":1,"queuedTimeMillis":0,"elapsedTimeMillis":2,"finishingTimeMillis":0,'
    b'"physicalInputTimeMillis":0,"processedRows":1,"processedBytes":0,"physicalInputBytes":0,'
    b'"physicalWrittenBytes":0,"internalNetworkInputBytes":0,"peakMemoryBytes":8,"spilledBytes":0},'
    b'"warnings":[]}'
)
INFO = b'{"nodeVersion":{"version":"476"},"environment":"mock","coordinator":true,"starting":false}'


class Coordinator:
    """Answers POST /v1/statement and GET /v1/info."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._statement = b""

    async def start(self) -> int:
        """Bind a free port of loopback and return it."""
        server = await asyncio.get_running_loop().create_server(
            lambda: ByteStream(self._connected), "127.0.0.1", 0
        )
        port = int(server.sockets[0].getsockname()[1])
        self._statement = _response(DOCUMENT % port)
        return port

    def _connected(self, stream: ByteStream) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: ByteStream) -> None:
        parser = RequestParser(1 << 24)
        info = _response(INFO)
        while data := await stream.read():
            parser.feed(data)
            while parser.requests and parser.requests[0].complete:
                request = parser.requests.popleft()
                stream.write(self._statement if request.method == "POST" else info)
        stream.close()


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


async def main() -> None:
    print(await Coordinator().start(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
