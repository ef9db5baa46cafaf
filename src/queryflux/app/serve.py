"""Starting a process: configuration, log, loop, and the roles it can have."""

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import uvloop

from queryflux.app.folder import folder_config, free_ports, how_to_connect
from queryflux.app.standalone import Standalone
from queryflux.auth.hashes import check_password
from queryflux.config.loader import load_file
from queryflux.config.problems import render_problems
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot, snapshot_of
from queryflux.routing.regex import check_regex
from queryflux.telemetry.logs import setup
from queryflux.telemetry.writer import STDERR

log = logging.getLogger(__name__)


def serve_file(path: Path, environ: Mapping[str, str]) -> int:
    """Serve from a YAML file until a signal ends it. Raises ConfigError with every problem of the file."""
    loaded = load_file(path, environ, check_regex, check_password)
    setup(loaded.config.queryflux.logging.format, loaded.config.queryflux.logging.level)
    quieten_libraries()
    for warning in loaded.warnings:
        log.warning("%s", render_problems([warning]))
    return serve(loaded.config, loaded.snapshot)


def serve_folder(directory: Path, host: str, wanted: Mapping[str, int | None]) -> int:
    """Serve a folder of data files until a signal ends it."""
    setup("console", "info")
    quieten_libraries()
    ports, notes = free_ports(host, dict(wanted))
    config = folder_config(directory, host, ports)
    for note in notes:
        log.warning("%s", note)
    return serve(config, snapshot_of(config), lambda open_ports: how_to_connect(host, open_ports))


def quieten_libraries() -> None:
    """At level info, the operator port's server need not tell that it comes and goes: we do."""
    if logging.getLogger().level == logging.INFO:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def serve(
    config: RootConfig, snapshot: Snapshot, greeting: Callable[[Mapping[str, int]], str] | None = None
) -> int:
    """Serve until a signal ends it. ``greeting``, of the ports that were opened, goes to standard output."""
    uvloop.run(_serve(config, snapshot, greeting))
    _leave_threads_behind()
    return 0


def _leave_threads_behind() -> None:
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
    config: RootConfig, snapshot: Snapshot, greeting: Callable[[Mapping[str, int]], str] | None
) -> None:
    standalone = Standalone(config, snapshot)
    await standalone.start()
    spare_the_collector()

    def say_ready() -> None:
        log.info("ready")
        if greeting is not None:
            print(greeting(ports_of(standalone)), flush=True)

    asyncio.get_running_loop().call_soon(say_ready)  # when run() waits, and a signal ends it in good order
    await standalone.run()


def ports_of(standalone: Standalone) -> dict[str, int]:
    """The port of each open door and of the operator port, by their keys."""
    return {name: door.port for name, door in standalone.doors.items()} | {"adminApi": standalone.ops.port}


def spare_the_collector() -> None:
    """What was made at the start stays for good: the garbage collector need not look at it again, and may
    look at the rest less often. Queries make little that only it could free."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
