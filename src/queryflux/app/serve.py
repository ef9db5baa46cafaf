"""Starting a process: configuration, log, loop, and the roles it can have."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import uvloop

from queryflux.app.folder import (
    check_folder,
    folder_config,
    free_ports,
    how_to_connect,
    said_as_options,
    warn_if_open,
)
from queryflux.app.process import QueryProcess
from queryflux.auth.hashes import check_password
from queryflux.config.checks_process import PROVIDER
from queryflux.config.loader import load_file
from queryflux.config.persistence import InMemoryPersistence
from queryflux.config.problems import render_path, render_problems
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot, snapshot_of
from queryflux.model.errors import QueryFluxError
from queryflux.routing.regex import check_regex
from queryflux.telemetry.logs import setup
from queryflux.telemetry.writer import STDERR

log = logging.getLogger(__name__)


def serve_file(path: Path, environ: Mapping[str, str], workers: int | None = None) -> int:
    """Serve from a YAML file until a signal ends it; ``workers`` as for ``serve``. Raises ConfigError with
    every problem of the file."""
    loaded = load_file(path, environ, check_regex, check_password)
    setup(loaded.config.queryflux.logging.format, loaded.config.queryflux.logging.level)
    quieten_libraries()
    stored = not isinstance(loaded.config.queryflux.persistence, InMemoryPersistence)
    for warning in loaded.warnings:
        # Who may come is the database's to say: when that is read, it is said.
        if not (stored and warning.path == render_path(PROVIDER)):
            log.warning("%s: %s", path, render_problems([warning]))
    return serve(loaded.config, loaded.snapshot, workers=workers)


def serve_folder(
    directory: Path, host: str, wanted: Mapping[str, int | None], workers: int | None = None
) -> int:
    """Serve a folder of data files until a signal ends it; ``workers`` as for ``serve``."""
    setup("console", "info")
    quieten_libraries()
    check_folder(directory)
    ports, notes = free_ports(host, wanted, workers or 1)
    config = folder_config(directory, host, ports)
    for note in notes:
        log.warning("%s", note)
    warn_if_open(host)
    greeting = partial(how_to_connect, host)
    with said_as_options():
        return serve(config, snapshot_of(config), greeting, workers)


def quieten_libraries() -> None:
    """At level info, the operator port's server need not tell that it comes and goes: we do."""
    if logging.getLogger().level == logging.INFO:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def serve(
    config: RootConfig,
    snapshot: Snapshot,
    greeting: Callable[[Mapping[str, int]], str] | None = None,
    workers: int | None = None,
) -> int:
    """Serve until a signal ends it. ``greeting``, of the ports that were opened, goes to standard output.
    ``workers``: so many processes take the queries; None: this one."""
    uvloop.run(_serve(config, snapshot, greeting, workers))
    leave_threads_behind()
    return 0


def leave_threads_behind() -> None:
    """End the process here if a thread is stuck in a library, for which the interpreter would wait: gRPC
    takes two minutes to give up a client that has connected and says nothing."""
    STDERR.close()
    main = threading.main_thread()
    stuck = [
        thread.name
        for thread in threading.enumerate()
        if thread is not main and not isinstance(thread, threading._DummyThread)
    ]
    if not stuck:
        return
    log.warning("leaving threads behind that did not end: %s", ", ".join(stuck))
    STDERR.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _serve(
    config: RootConfig,
    snapshot: Snapshot,
    greeting: Callable[[Mapping[str, int]], str] | None,
    workers: int | None,
) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):  # until run() takes them: start() takes back what it made
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        process = await _start(config, snapshot, greeting, workers)
    except asyncio.CancelledError:
        log.info("ended by a signal while it was starting")
        return
    await process.run()


async def _start(
    config: RootConfig,
    snapshot: Snapshot,
    greeting: Callable[[Mapping[str, int]], str] | None,
    workers: int | None,
) -> QueryProcess:
    def say_ready() -> None:
        spare_the_collector()
        try:
            process.check_ready()
        except QueryFluxError as error:
            log.warning("started, and takes no queries: %s", error.message)
            return
        log.info("ready")
        if greeting is not None:
            print(greeting(process.ports()), flush=True)

    process: QueryProcess
    if workers is not None:
        from queryflux.app.parent import Parent

        process = Parent(config, snapshot, workers)
        process.activation.checked_for = config.queryflux  # its workers' doors, for it has none
        await process.start()
        asyncio.get_running_loop().call_soon(say_ready)
    elif config.queryflux.role == "worker":
        from queryflux.app.worker import Worker

        process = worker = Worker(config, snapshot)
        worker.when_configured = say_ready
        await worker.start()
    else:
        from queryflux.app.standalone import Standalone

        process = Standalone(config, snapshot)
        await process.start()
        # When run() waits, and a signal ends it in good order.
        asyncio.get_running_loop().call_soon(say_ready)
    return process


def spare_the_collector() -> None:
    """What was made at the start stays for good: the garbage collector need not look at it again, and may
    look at the rest less often. Queries make little that only it could free."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
