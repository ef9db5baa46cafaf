"""Processes that run seeds, for all simulations."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.sim.seeds import processes


@pytest.fixture(scope="package")
def pool() -> Iterator[ProcessPoolExecutor]:
    """One for each processor."""
    with processes() as started:
        yield started
