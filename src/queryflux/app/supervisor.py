"""Workers on one host that stand behind the same ports: bound, started, watched and ended by their parent.

Each listening port is bound once, here, and every worker inherits it. A worker that dies is started again,
under a new tag and instance id, so that nobody takes it for the one before: what that held is gone, and its
siblings say so at once. One that hangs is killed (signs.py). A worker that cannot even start is started again
ever less often; at the first start of all it ends the parent, which says why.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from queryflux.app.seat import (
    DRAIN,
    FAILED,
    GIVEN,
    HURRY,
    READY,
    TALLY,
    UP,
    Failure,
    Place,
    open_line,
    process_document,
    temporary_folder,
)
from queryflux.app.signs import Attention, Patience, Signs
from queryflux.config.process import ProcessConfig
from queryflux.frontends.listener import bind
from queryflux.frontends.mysql.numbers import process_number as mysql_number
from queryflux.frontends.postgres.keys import process_number as postgres_number
from queryflux.model.errors import ConfigError, NotConfigured, QueryFluxError
from queryflux.model.ids import new_process_tag
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.siblings import Frames, Siblings
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.turns import Tally, make_tally

log = logging.getLogger(__name__)

SHARED_DOORS = ("trinoHttp", "postgresWire", "mysqlWire")
"""Doors whose port all workers share; gRPC cannot."""
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 30.0
STEADY_SECONDS = 30.0
"""A worker that has lived for so long is started again without delay."""
START_SECONDS = 60.0
LAST_SECONDS = 10.0
"""How long after its drain a worker may take to end."""
LAST_WORDS_SECONDS = 0.5
"""How long what it has said may take to arrive once it has ended."""
REMEMBERED_TAGS = 64
_PATH_BYTES = 90
"""Longest path of a directory for sockets; the operating system takes about a hundred bytes of a socket's."""

Gone = Callable[[str], Awaitable[None]]
"""What to do about the instance id of a worker that has died."""


@dataclass(slots=True)
class Child:
    """One worker's process. ``why`` it is not ready, as it says itself."""

    name: str
    instance: str
    tag: str
    process: asyncio.subprocess.Process
    line: Frames
    began: float
    signs: Signs
    up: bool = False
    why: str = "it starts"
    failure: Failure | None = None
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether it takes queries."""
        return self.up and not self.why and not self.signs.silent

    @property
    def reason(self) -> str:
        """Why it does not."""
        return "it gives no sign of life" if self.signs.silent else self.why

    def kill(self) -> None:
        """End it, also when it was stopped."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """The workers of one host."""

    def __init__(
        self,
        host: ProcessConfig,
        names: list[str],
        clock: Clock,
        child: Callable[[str, int], ProcessConfig],
        gone: Gone,
        metrics: Metrics,
        *,
        patience: Patience | None = None,
    ) -> None:
        """``host`` has the doors, ``names`` are those of the workers; ``child`` makes the configuration of
        the worker of a name and number; ``patience`` is with those that hang."""
        self._host = host
        self._names = names
        self._clock = clock
        self._child = child
        self._gone = gone
        self._metrics = metrics
        self._attention = Attention(patience or Patience(), clock)
        self._secret = secrets.token_bytes(32)
        self._children: dict[int, Child] = {}
        self._tags: list[str] = []
        self._sockets: dict[str, list[socket.socket]] = {}
        self._tallies: list[Tally] = []
        self._directory: Path | None = None
        self._tasks = TaskGroup("workers")
        self._started: dict[int, asyncio.Future[None]] = {}
        self._configured = True
        self._stopping = asyncio.Event()
        self._fewer = asyncio.Event()
        self.siblings: Siblings | None = None
        """By which the parent asks its workers."""

    @property
    def ports(self) -> dict[str, int]:
        """Of the doors that the workers share."""
        return {door: bound[0].getsockname()[1] for door, bound in self._sockets.items()}

    def ports_of_first(self) -> dict[str, int]:
        """All that the first worker listens on, its own ports among them; empty while it does not run."""
        first = self._children.get(0)
        return dict(first.ports) if first is not None else {}

    def count(self) -> None:
        """Set the gauge of workers that are ready."""
        ready = sum(child.ready for child in self._children.values())
        self._metrics.gauge("queryflux_ready_workers").set(ready)

    def check_ready(self) -> None:
        """Raises NotConfigured when no worker takes queries."""
        if not any(child.ready for child in self._children.values()):
            why = "; ".join(f"{child.name}: {child.reason}" for child in self._children.values())
            raise NotConfigured(f"no worker is ready ({why or 'none runs'})", hint="retry in a moment")

    # The beginning.

    async def start(self, *, configured: bool = True) -> None:
        """Bind the doors and start all workers; returns when all are ready, or all are up where there is no
        configuration that they could be given yet. Raises ConfigError, which says what keeps one from it."""
        self._configured = configured
        self._directory = _private_directory()
        for name, door in self._host.frontends.named().items():
            if door.enabled and name in SHARED_DOORS:
                self._sockets[name] = bind(name, door)
        make_tally(self._directory / TALLY, max(1, len(self._sockets)), len(self._names))
        self.siblings = Siblings(self._directory, "", self._secret)
        self._tallies = [
            Tally(self._directory / TALLY, listener, len(self._names), 0)
            for listener in range(len(self._sockets))
        ]
        loop = asyncio.get_running_loop()
        self._started = {number: loop.create_future() for number in range(len(self._names))}
        for number in self._started:
            self._tasks.spawn(f"worker {number}", self._keep(number))
        self._tasks.spawn("signs", self._attention.pay(self._signs))
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(*self._started.values())
        except TimeoutError:
            late = "; ".join(f"{it.name}: {it.reason}" for it in self._children.values() if not it.ready)
            raise ConfigError(f"not all workers are ready after {START_SECONDS:g} s: {late}") from None
        for name, port in self.ports.items():
            log.info("%s listens on %s:%d", name, self._host.frontends.named()[name].host, port)

    def _signs(self) -> list[Signs]:
        return [child.signs for child in self._children.values()]

    async def _keep(self, number: int) -> None:
        """See to it that there is a worker at this place."""
        wait = FIRST_WAIT_SECONDS
        while not self._stopping.is_set():
            try:
                child = await self._spawn(number)
            except OSError as error:
                if not self._started[number].done():
                    reason = error.strerror or str(error)
                    self._started[number].set_exception(ConfigError(f"no worker can be started: {reason}"))
                    return
                log.error("worker %s cannot be started, trying again: %s", self._names[number], error)
                await self._clock.sleep(LONGEST_WAIT_SECONDS)
                continue
            status = await self._watch(number, child)
            await self._bury(number, child)
            if self._stopping.is_set():
                return
            if self._failed_first(number, child, status):
                return
            lived = self._clock.monotonic() - child.began
            wait = FIRST_WAIT_SECONDS if lived >= STEADY_SECONDS else min(2 * wait, LONGEST_WAIT_SECONDS)
            log.error("worker %s %s; it is started again in %g s", child.name, _how(child, status), wait)
            self._metrics.counter("queryflux_worker_restarts_total", worker=child.name).inc()
            await self._clock.sleep(wait)

    def _failed_first(self, number: int, child: Child, status: int) -> bool:
        started = self._started[number]
        if started.done():
            return False
        hint = child.failure.hint if child.failure is not None else ""
        started.set_exception(ConfigError(f"worker {child.name} {_how(child, status)}", hint=hint))
        return True

    async def _spawn(self, number: int) -> Child:
        assert self._directory is not None
        name, tag = self._names[number], self._new_tag()
        process = self._child(name, number)
        ours, theirs = socket.socketpair()
        numbers = {door: [one.fileno() for one in bound] for door, bound in self._sockets.items()}
        inherited = [theirs.fileno(), *(one for listening in numbers.values() for one in listening)]
        try:
            with theirs:
                spawned = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *_like_this_one(),
                    "-m",
                    "queryflux.cli",
                    "worker-seat",
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=inherited,
                    start_new_session=True,  # Ctrl-C is for the parent, which says what is to be done
                )
        except BaseException:
            ours.close()
            raise
        line = await open_line(ours)
        place = Place(
            number=number,
            of=len(self._names),
            tag=tag,
            directory=str(self._directory),
            secret=self._secret,
            process=process_document(process),
            sockets=numbers,
            sign_secs=self._attention.patience.sign,
        )
        line.write(GIVEN, msgspec.msgpack.encode(place))
        instance = process.instance_id or ""
        now = self._clock.monotonic()
        child = Child(name, instance, tag, spawned, line, now, Signs(name, now, lambda: child.kill()))
        self._children[number] = child
        if self._stopping.is_set():
            line.write(HURRY)
        log.info("worker %s is process %d, tag %s", name, spawned.pid, tag)
        return child

    def _new_tag(self) -> str:
        """One that no process has or had of late, in none of the forms that ids have."""
        taken = self._tags[-REMEMBERED_TAGS:]
        while True:
            tag = new_process_tag()
            if all(
                tag != other
                and mysql_number(tag) != mysql_number(other)
                and postgres_number(tag) != postgres_number(other)
                for other in taken
            ):
                self._tags = [*taken, tag]
                return tag

    async def _watch(self, number: int, child: Child) -> int:
        """Hear what it says until it hangs up or ends; its exit status, negative for a signal."""
        hearing = asyncio.ensure_future(self._hear(number, child))
        ending = asyncio.ensure_future(child.process.wait())
        try:
            await asyncio.wait({hearing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():  # what it said at last, or another process has the line open
                await asyncio.wait({hearing}, timeout=LAST_WORDS_SECONDS)
        finally:
            hearing.cancel()
            ending.cancel()
            why, _ = await asyncio.gather(hearing, ending, return_exceptions=True)
        if isinstance(why, Exception):  # a cancellation is none
            log.error("what worker %s said was not understood", child.name, exc_info=why)
        child.up, child.signs.over = False, True
        try:
            async with asyncio.timeout(LAST_SECONDS):
                return await child.process.wait()
        except TimeoutError:
            log.warning("worker %s has said its last and does not end: it is killed", child.name)
            child.process.kill()
        return await child.process.wait()

    async def _hear(self, number: int, child: Child) -> None:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # a frame too long is neither
            while True:
                kind, content = await child.line.read()
                self._attention.hear(child.signs)
                if kind == UP:
                    child.up, child.ports = True, msgspec.msgpack.decode(content)
                elif kind == READY:
                    child.why = content.decode()
                elif kind == FAILED:
                    child.failure = msgspec.msgpack.decode(content, type=Failure)
                begun = child.up and not (child.why and self._configured)
                if begun and not self._started[number].done():
                    self._started[number].set_result(None)

    async def _bury(self, number: int, child: Child) -> None:
        """What a process that has gone leaves behind."""
        child.line.stream.abort()
        for tally in self._tallies:
            tally.write_for(number, None)
        if self._directory is not None:
            (self._directory / child.tag).unlink(missing_ok=True)
            shutil.rmtree(temporary_folder(self._directory, child.tag), ignore_errors=True)
        try:
            await self._gone(child.instance)
        except QueryFluxError as error:
            log.warning("what worker %s held is given back later: %s", child.name, error.message)
        except Exception:
            log.exception("what worker %s held is given back later", child.name)
        finally:
            self._children.pop(number, None)
            self._fewer.set()

    # The end.

    def begin_drain(self, seconds: float) -> None:
        """Tell all to drain for so long; none is started again."""
        self._stopping.set()
        self._attention.ending(seconds)
        self._close_sockets()
        for child in self._children.values():
            child.line.write(DRAIN)

    def hurry(self) -> None:
        """Tell all to end at once."""
        self._attention.ending(0)
        for child in self._children.values():
            child.line.write(HURRY)

    async def ended(self) -> None:
        """Return when no worker is left."""
        while self._children:
            self._fewer.clear()
            await self._fewer.wait()

    async def close(self) -> None:
        """End what is left, and remove what was made. May be called twice."""
        self._stopping.set()
        self.hurry()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self.ended()
        except TimeoutError:
            for child in self._children.values():
                log.warning("worker %s does not end: it is killed", child.name)
                child.process.kill()
            await self.ended()
        await self._tasks.close()
        self._close_sockets()
        if self.siblings is not None:
            await self.siblings.close()
        for tally in self._tallies:
            tally.close()
        self._tallies = []
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _close_sockets(self) -> None:
        for bound in self._sockets.values():
            for listening in bound:
                listening.close()
        self._sockets = {}


def _private_directory() -> Path:
    """A new directory that only this user may enter, with a path short enough for sockets in it."""
    made = tempfile.mkdtemp(prefix="queryflux-")
    if len(os.fsencode(made)) > _PATH_BYTES:
        os.rmdir(made)
        made = tempfile.mkdtemp(prefix="queryflux-", dir="/tmp")
    return Path(made)


def _like_this_one() -> list[str]:
    """Options for a child that is to find the same modules: without ``-P`` it would also look into the
    current directory."""
    return [] if os.getcwd() in sys.path or "" in sys.path else ["-P"]


def _how(child: Child, status: int) -> str:
    """How it ended, for people."""
    if child.failure is not None:
        return f"cannot serve: {child.failure.message}"
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with status {status}"
