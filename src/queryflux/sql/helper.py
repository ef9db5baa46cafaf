"""A child process that translates large statements: started when first needed, replaced after a deadline or
a crash. It reads and writes JSON documents, each after its length in four bytes; it ends with its input, and
by a timer of its own if nobody is left to end it at the deadline.
"""

import asyncio
import json
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queryflux.sql.transpile import Outcome

MEMORY_LIMIT_BYTES = 2 << 30
"""Address space of the child: a syntax tree takes some hundred times the bytes of its text."""
MAX_REPLY_BYTES = 256 << 20
GRACE_SECS = 1.0
"""How long after the deadline the child ends itself."""
_MOST_DESCRIPTORS = 1 << 20
_LENGTH = struct.Struct(">I")
COMMAND = ("-P", "-c", "from queryflux.sql.helper import serve; serve()")


class HelperFailed(Exception):
    """The helper did not answer; the message says why, in words fit for a client."""


class TranspileHelper:
    """One child, one statement at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def transpile(
        self, text: str, source: str, target: str, strict: bool, deadline: float
    ) -> "Outcome":
        """As ``transpile.transpile``. Waits ``deadline`` seconds at most for its turn and as long for the
        answer. Raises HelperFailed; the next call then gets a new child."""
        from queryflux.sql.transpile import Outcome

        request = json.dumps([text, source, target, strict, deadline + GRACE_SECS]).encode()
        try:
            async with asyncio.timeout(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise HelperFailed("too many large statements are being translated") from None
        try:
            async with asyncio.timeout(deadline):
                return Outcome(**json.loads(await self._exchange(request)))
        except TimeoutError:
            await self._kill()
            raise HelperFailed(f"translating so large a statement took over {deadline:g} s") from None
        except (OSError, EOFError, ValueError):
            await self._kill()
            raise HelperFailed("the process that translates large statements has ended") from None
        except BaseException:
            # Cancelled half-way: the child's next reply would belong to this statement.
            await self._kill()
            raise
        finally:
            self._turn.release()

    async def _exchange(self, request: bytes) -> bytes:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines((_LENGTH.pack(len(request)), request))
        await process.stdin.drain()
        (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
        if length > MAX_REPLY_BYTES:
            raise ValueError("reply too large")
        return await process.stdout.readexactly(length)

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """Stop the child. May be called twice."""
        async with self._turn:
            await self._kill()


def serve() -> None:
    """The child's life: answer until the input ends."""
    import os
    import resource
    import signal
    from dataclasses import asdict

    # What it has been left of its parent would stay open with it: ports, above all.
    os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MOST_DESCRIPTORS))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from queryflux.sql.transpile import transpile

    while header := sys.stdin.buffer.read(_LENGTH.size):
        *asked, seconds = json.loads(sys.stdin.buffer.read(_LENGTH.unpack(header)[0]))
        signal.setitimer(signal.ITIMER_REAL, seconds)
        reply = json.dumps(asdict(transpile(*asked))).encode()
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(_LENGTH.pack(len(reply)) + reply)
        sys.stdout.buffer.flush()
