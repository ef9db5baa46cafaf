"""The process that runs the scripts of one configuration, seen from ours.

One child, one call at a time. Calls wait in a line for each script and the scripts take turns, so that one
which hangs on every call delays each of another's by its own time limit and no more. A child that hangs ends
by its own timer (child.py) or is killed a little later; that call fails, and the next one starts another
child, in which all scripts are compiled again. Nothing is started while there are no scripts.
"""

import asyncio
import json
import logging
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from queryflux.config.problems import show
from queryflux.model.errors import ConfigError
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.scripts.failures import FailureLog
from queryflux.scripts.limits import (
    COMMAND,
    ENVIRONMENT,
    LENGTH,
    Limits,
    Text,
    briefly,
    first_message,
    framed,
    said,
)

log = logging.getLogger(__name__)

GRACE_SECS = 0.5
"""After its limit a child has so long to end itself."""
START_SECS = 10.0
_REPLIES = frozenset(("problems", "value", "error"))


class ScriptFailed(Exception):
    """A call gave nothing. ``reason`` is what it is counted under: ``raised``, ``timeout``, ``crashed``,
    ``memory``, ``queue``, ``closed``. The message is the operator's: it may show data. ``brief`` says as much
    as a client may know."""

    def __init__(self, reason: str, message: str, *, brief: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.brief = brief or message


class _Ended(Exception):
    """The child has ended; ``status`` as of a subprocess."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class _Call:
    """``waiting`` runs out unless its turn comes before."""

    __slots__ = ("arguments", "result", "script", "waiting")

    def __init__(self, script: int, arguments: tuple[Any, ...], clock: Clock, seconds: float) -> None:
        self.script = script
        self.arguments = arguments
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting = clock.call_later(seconds, self._overdue)

    def _overdue(self) -> None:
        self.fail(ScriptFailed("queue", "too many calls of scripts are waiting"))

    def fail(self, failure: ScriptFailed) -> None:
        """It gives nothing, unless it has given something or nobody waits any more."""
        if not self.result.done():
            self.result.set_exception(failure)


class ScriptHost:
    """Runs scripts that have been compiled. Made and called from one loop."""

    def __init__(
        self,
        texts: Sequence[Text],
        clock: Clock,
        metrics: Metrics | None = None,
        *,
        limits: Limits | None = None,
    ) -> None:
        """Starts nothing."""
        self.texts = tuple(texts)
        self._limits = limits or Limits()
        self._clock = clock
        self._metrics = metrics
        self._process: asyncio.subprocess.Process | None = None
        self._lines: dict[int, deque[_Call]] = {}
        self._turns: deque[int] = deque()
        self._work = asyncio.Event()
        self._tasks = TaskGroup("scripts")
        self._closed = False
        self.failures = FailureLog(clock)

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._process.pid if self._process is not None else None

    # Beginning and end.

    async def start(self) -> None:
        """Compile the scripts; without any there is nothing to do. Raises ConfigError, which names the
        script and its line."""
        if self.texts:
            try:
                await self._begin()
            except ScriptFailed as failure:
                await self._kill()
                raise ConfigError(f"scripts: {failure}") from None
            except BaseException:
                await self._kill()
                raise
            self._tasks.spawn("calls", self._serve())

    async def close(self) -> None:
        """End the child; calls that wait fail. May be called twice."""
        self._closed = True
        await self._tasks.close()
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for call in line:
                call.fail(_closing())
        await self._kill()

    # Calls.

    async def call(self, script: int, *arguments: Any) -> Any:
        """What the function of a script gives for arguments that JSON knows. Raises ScriptFailed."""
        place = self.texts[script].place
        if self._closed:
            raise _closing()
        began = self._clock.monotonic()
        call = _Call(script, arguments, self._clock, self._limits.queue_secs)
        self._enqueue(call)
        try:
            return await call.result
        except ScriptFailed as failure:
            self._count_failure(script, failure.reason)
            brief = f"{place}: {failure.brief}"
            raise ScriptFailed(failure.reason, f"{place}: {failure}", brief=brief) from None
        finally:
            call.waiting.cancel()
            self._observe(script, self._clock.monotonic() - began)

    def _enqueue(self, call: _Call) -> None:
        line = self._lines.get(call.script)
        if not line:
            line = self._lines[call.script] = deque()
            self._turns.append(call.script)
        line.append(call)
        self._work.set()

    def _next(self) -> _Call | None:
        """The first call of the script whose turn it is."""
        while self._turns:
            script = self._turns.popleft()
            line = self._lines[script]
            call = line.popleft() if line else None
            if line:
                self._turns.append(script)
            if call is not None and not call.result.done():
                call.waiting.cancel()
                return call
        return None

    async def _serve(self) -> None:
        while True:
            call = self._next()
            if call is None:
                self._work.clear()
                await self._work.wait()
                continue
            try:
                value = await self._answered(call)
            except ScriptFailed as failure:
                call.fail(failure)
            except ConfigError as error:  # it was compiled before: what it imports is not there any more
                call.fail(ScriptFailed("raised", error.message, brief="it does not compile any more"))
            except asyncio.CancelledError:
                call.fail(_closing())
                raise
            except Exception as error:
                log.exception("a call of %s failed inside QueryFlux", self.texts[call.script].place)
                await self._kill()
                call.fail(ScriptFailed("crashed", f"internal error: {type(error).__name__}"))
            else:
                if not call.result.done():
                    call.result.set_result(value)

    async def _answered(self, call: _Call) -> Any:
        """Raises ScriptFailed."""
        if self._process is not None and self._process.returncode is not None:
            self._process = None  # it ended while nobody asked for anything
        if self._process is None:
            await self._begin()
        limit = self._limits.call_secs
        try:
            async with asyncio.timeout(limit + GRACE_SECS):
                reply = await self._exchange(framed((call.script, call.arguments)))
        except TimeoutError:
            await self._kill()
            raise ScriptFailed("timeout", f"it took longer than {limit:g} s") from None
        except _Ended as end:
            self._process = None
            raise self._why(end.status, limit, "it") from None
        self._print(call.script, reply)
        if "error" in reply:
            memory = reply.get("kind") == "MemoryError"
            if memory:
                await self._kill()
            raise ScriptFailed("memory" if memory else "raised", said(reply), brief=briefly(reply))
        return reply["value"]

    # The child.

    async def _begin(self) -> None:
        """Start a child and compile. Raises ScriptFailed, ConfigError."""
        limit = self._limits.compile_secs
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit + START_SECS):
                reply = await self._exchange(first_message(self.texts, self._limits))
        except TimeoutError:
            await self._kill()
            raise ScriptFailed("timeout", f"compiling them took longer than {limit:g} s") from None
        except _Ended as end:
            self._process = None
            raise self._why(end.status, limit, "compiling them") from None
        if "problems" not in reply:
            raise ScriptFailed("memory", f"compiling them failed: {said(reply)}")
        problems = zip(self.texts, reply["problems"], strict=True)
        wrong = [f"{text.place}: {said(problem)}" for text, problem in problems if problem is not None]
        if wrong:
            await self._kill()
            raise ConfigError("; ".join(wrong), hint="mend the script")
        if reply["output"]:
            log.debug(
                "scripts said when they were compiled: %s", show(reply["output"], self._limits.max_output)
            )

    async def _exchange(self, message: bytes) -> dict[str, Any]:
        """One message and its reply. Raises _Ended; ScriptFailed when what comes is no reply."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(message)
            await process.stdin.drain()
            (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
            if size <= self._limits.max_result + 16 * self._limits.max_output:
                reply = json.loads(await process.stdout.readexactly(size))
                if isinstance(reply, dict) and not _REPLIES.isdisjoint(reply):
                    return reply
        except (OSError, EOFError):
            _end(process)
            raise _Ended(await process.wait()) from None
        except ValueError:
            log.debug("what the script process sent is not JSON")
        await self._kill()
        raise ScriptFailed("crashed", "a script wrote where its process answers")

    def _why(self, status: int, limit: float, what: str) -> ScriptFailed:
        if status == -signal.SIGALRM:
            return ScriptFailed("timeout", f"{what} took longer than {limit:g} s")
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return ScriptFailed("crashed", f"{what} ended the script process ({how})")

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)
            await process.wait()

    # What is seen of it.

    def _print(self, script: int, reply: dict[str, Any]) -> None:
        if reply.get("output"):
            said_here = show(reply["output"], self._limits.max_output)
            log.debug("%s printed %s", self.texts[script].place, said_here)

    def _observe(self, script: int, seconds: float) -> None:
        if self._metrics is not None:
            kind = self.texts[script].script.kind
            self._metrics.histogram("queryflux_script_duration_seconds", kind=kind).observe(seconds)

    def _count_failure(self, script: int, reason: str) -> None:
        if self._metrics is not None:
            kind = self.texts[script].script.kind
            self._metrics.counter("queryflux_script_failures_total", kind=kind, reason=reason).inc()


def _closing() -> ScriptFailed:
    return ScriptFailed("closed", "this server is shutting down")


def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it with whatever it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
