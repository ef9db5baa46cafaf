"""Seeds in a row, on all processors."""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

from tests.sim.capacity import Outcome, simulate
from tests.sim.fleet import simulate_fleet

KINDS = ("capacity", "fleet")
AT_A_TIME = 5


def run(kind: str, seed: int) -> Outcome:
    """One seed."""
    return simulate(seed) if kind == "capacity" else simulate_fleet(seed)


@contextmanager
def processes(jobs: int = 0) -> Iterator[ProcessPoolExecutor]:
    """So many, or as many as there are processors."""
    pool = ProcessPoolExecutor(jobs or os.cpu_count() or 1, get_context("spawn"))
    with pool:
        yield pool


def outcomes(pool: ProcessPoolExecutor, kind: str, first: int, seeds: int) -> Iterator[Outcome]:
    """In the order of the seeds."""
    yield from pool.map(partial(run, kind), range(first, first + seeds), chunksize=AT_A_TIME)
