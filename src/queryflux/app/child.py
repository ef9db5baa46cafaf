"""The process of a worker that a parent on the same host has started (supervisor.py)."""

import asyncio
import os
import shutil
import socket

import uvloop

from queryflux.app.seat import Line, Seat, inherited, open_line, process_of, seat_of
from queryflux.app.serve import leave_threads_behind, quieten_libraries, spare_the_collector
from queryflux.app.worker import Worker
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import snapshot_of
from queryflux.model.errors import InvalidRequest, QueryFluxError
from queryflux.telemetry.logs import setup
from queryflux.telemetry.writer import STDERR

ORPHAN_SECONDS = 3.0


def serve_seat(descriptor: int) -> int:
    """Serve until the parent says so, a signal comes, or the parent has gone; ``descriptor`` is this end of
    the line to it. Gives the exit status."""
    try:
        end = inherited(descriptor)
    except OSError:
        raise InvalidRequest("worker-seat is how serve --workers starts a worker, and nothing else") from None
    status = uvloop.run(_serve(end))
    leave_threads_behind()
    return status


async def _attend(line: Line, worker: Worker, seat: Seat, directory: str) -> None:
    await line.attend(worker, seat)
    # The parent has gone: what is left to tell it need not be tried for as long as otherwise.
    await asyncio.sleep(ORPHAN_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)
    worker.query_log.flush()
    STDERR.close()
    os._exit(1)


def _begin(seat: Seat) -> None:
    seat.configured()
    spare_the_collector()


async def _serve(end: socket.socket) -> int:
    line = Line(await open_line(end))
    try:
        place = await line.place()
    except ConnectionError:
        return 1  # nobody is left to be told
    process = process_of(place)
    setup(process.logging.format, process.logging.level, worker=process.worker_name or "")
    quieten_libraries()
    config = RootConfig(queryflux=process)
    seat = seat_of(place)
    try:
        worker = Worker(config, snapshot_of(config), seat=seat)
        seat.siblings.count_in(worker.metrics)
        worker.when_configured = lambda: _begin(seat)
        await worker.start()
    except QueryFluxError as error:
        await line.failed(error)
        return 1
    attending = asyncio.ensure_future(_attend(line, worker, seat, place.directory))
    try:
        await worker.run()
    finally:
        attending.cancel()
        line.close()
        if line.orphaned:
            shutil.rmtree(place.directory, ignore_errors=True)  # nobody else would
    return 0
