"""QueryFlux itself, running in a thread of the test process: real doors on free ports of loopback.

Blocking clients talk to it from the test's own thread; what it holds (queries, slots, threads, tasks) can be
looked at while it runs.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

from queryflux.app.process import QueryProcess
from queryflux.app.standalone import Standalone
from queryflux.auth.hashes import check_password
from queryflux.config.loader import load_bytes
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.history.record import QueryRecord
from queryflux.routing.regex import check_regex

T = TypeVar("T")
START_SECS = 60

DOORS = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
    mysqlWire: {host: 127.0.0.1, port: 0}
    flightSql: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: warning}
"""


class Serving:
    """A running QueryFlux."""

    def __init__(self, standalone: Standalone, loop: asyncio.AbstractEventLoop) -> None:
        self.standalone = standalone
        self._loop = loop

    def port(self, door: str) -> int:
        """The port of a door, by its configuration key; ``adminApi`` is the operator port."""
        return self.standalone.ports()[door]

    @property
    def records(self) -> list[QueryRecord]:
        """History, oldest first; read where it is written, as long as that loop runs."""
        here = asyncio._get_running_loop()
        if here is self._loop or not self._loop.is_running():
            return list(self.standalone.history.newest())[::-1]
        return self.call(self._read)

    async def _read(self) -> list[QueryRecord]:
        return list(self.standalone.history.newest())[::-1]

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run something on its loop and wait."""
        return asyncio.run_coroutine_threadsafe(function(*args), self._loop).result(START_SECS)

    def wait_for(self, what: Callable[[], bool], seconds: float = 30) -> None:
        """Return when ``what`` is true, looked at on its loop; fails after so long."""

        deadline = time.monotonic() + seconds
        while not self.call(_ask, what):
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.01)

    def assert_idle(self, seconds: float = 30) -> None:
        """No query runs or waits and no slot is taken, soon."""
        generation = self.standalone.generation

        def idle() -> bool:
            groups = generation.groups.values()
            members = [cluster.member for cluster in generation.clusters.values()]
            return not (
                self.standalone.pipeline.running
                or any(member.running for member in members)
                or any(plan.admission.waiters for plan in groups)
            )

        self.wait_for(idle, seconds)


async def _ask(what: Callable[[], bool]) -> bool:
    return what()


@contextmanager
def serving(yaml: str, environ: Mapping[str, str] | None = None) -> Iterator[Serving]:
    """Serve a configuration; ``yaml`` is a whole file, or one without ``queryflux`` to get all doors."""
    text = yaml if "queryflux:" in yaml else DOORS + yaml
    with in_thread(text, environ, Standalone) as (standalone, loop):
        yield Serving(standalone, loop)


P = TypeVar("P", bound=QueryProcess)


@contextmanager
def in_thread(
    text: str, environ: Mapping[str, str] | None, make: Callable[[RootConfig, Snapshot], P]
) -> Iterator[tuple[P, asyncio.AbstractEventLoop]]:
    """A process as ``make`` makes it of a file, started, on a loop in a thread of its own."""
    loaded = load_bytes(text.encode(), environ or {}, check_regex, check_password)
    holder: dict[str, Any] = {}
    up = threading.Event()

    async def run() -> None:
        stop = asyncio.Event()
        holder["stop"] = stop
        holder["loop"] = asyncio.get_running_loop()
        process = make(loaded.config, loaded.snapshot)
        await process.start()
        holder["process"] = process
        up.set()
        await stop.wait()
        await process.close()

    def target() -> None:
        try:
            uvloop.run(run())
        except BaseException as error:
            holder["error"] = error
        finally:
            up.set()

    thread = threading.Thread(target=target, name="queryflux under test")
    thread.start()
    assert up.wait(START_SECS), "QueryFlux did not start"
    if "error" in holder:
        thread.join()
        raise holder["error"]
    try:
        yield holder["process"], holder["loop"]
    finally:
        holder["loop"].call_soon_threadsafe(holder["stop"].set)
        thread.join(START_SECS)
        assert not thread.is_alive(), "QueryFlux did not stop"
        if "error" in holder:
            raise holder["error"]
