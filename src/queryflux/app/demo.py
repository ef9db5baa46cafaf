"""``queryflux demo``: TPC-H data, a control plane on a PostgreSQL of its own with two workers, and three
questions through each of their doors."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import uvloop

from queryflux.app.demo_data import SCALE, make_data
from queryflux.app.demo_fleet import start_fleet
from queryflux.app.demo_postgres import embedded_postgres
from queryflux.app.demo_show import Show
from queryflux.app.folder import warn_if_open
from queryflux.app.serve import quieten_libraries
from queryflux.config.persistence import InMemoryPersistence, Persistence
from queryflux.model.errors import ConfigError
from queryflux.telemetry.logs import setup

TERMINATED = 128 + signal.SIGTERM
"""The exit status of what SIGTERM has ended early."""


def run_demo(directory: Path, host: str, wanted: Mapping[str, int | None], *, check: bool) -> int:
    """Make the data, start the fleet, ask; then stay up until Ctrl-C, or exit when ``check``. Gives the exit
    status: 0 when every answer was right and all else as it should be. Raises ConfigError when the demo's
    packages are missing, the data cannot be made or the fleet cannot start."""
    signal.signal(signal.SIGTERM, _terminate)  # as Ctrl-C, it leaves nothing behind
    setup("console", "warning")
    quieten_libraries()
    warn_if_open(host)
    try:
        data = directory / f"tpch-{SCALE}"
        make_data(data)
        print("Starting PostgreSQL, a control plane and two workers ...", flush=True)
        with ExitStack() as stack:
            faults: list[str] = []
            persistence: Persistence = InMemoryPersistence()
            try:
                persistence = stack.enter_context(embedded_postgres())
            except ConfigError as error:
                faults.append(f"PostgreSQL cannot run here: {error.message}")
                print(f"{faults[0]}\nThe control plane keeps its state in memory instead.", flush=True)
            uvloop.run(_demo(data, host, wanted, persistence, faults, check=check))
    except KeyboardInterrupt:
        if check:
            raise
        return 0
    except asyncio.CancelledError:  # SIGTERM while it was starting or asking
        return TERMINATED
    return 1 if faults else 0


async def _demo(
    data: Path,
    host: str,
    wanted: Mapping[str, int | None],
    persistence: Persistence,
    faults: list[str],
    *,
    check: bool,
) -> None:
    """Adds to what was not as it should be."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    parent = await start_fleet(data, host, wanted, persistence)
    try:
        faults += await Show(parent, host, data).run()
        for fault in faults:
            print(f"Not as it should be: {fault}", flush=True)
    except BaseException:
        await parent.close()
        raise
    if check:
        await parent.close()
    else:
        # When run() waits, and a signal ends it in good order.
        asyncio.get_running_loop().call_soon(lambda: print("Serving until Ctrl-C.", flush=True))
        parent.when_stopping = lambda: print("Stopping.", flush=True)
        await parent.run()


def _terminate(*_: object) -> None:
    sys.exit(TERMINATED)
