"""Clients that keep a QueryFlux under test busy while something happens to it."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

from tests.kit.doors import DOORS, Door
from tests.kit.serving import Serving

CLIENTS = 8


class Load:
    """Clients that ask one query after another; a fault of any ends the block that they run in."""

    def __init__(self, served: Serving, doors: Sequence[Door]) -> None:
        self.answers = 0
        self.faults: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(served, doors[index % len(doors)]))
            for index in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, served: Serving, door: Door) -> None:
        try:
            while not self._stop.is_set():
                with door.connect(served.port(door.name)) as client:
                    for number in range(10):
                        assert client.ask(f"SELECT {number} AS n") == [(number,)]
                        self.answers += 1
        except BaseException as error:
            self.faults.append(error)

    def reach(self, more: int, seconds: float = 60) -> None:
        """Return when so many more were answered."""
        wanted, deadline = self.answers + more, time.monotonic() + seconds
        while self.answers < wanted and not self.faults:
            assert time.monotonic() < deadline, f"{self.answers} answers, {wanted} wanted"
            time.sleep(0.01)

    def stop(self) -> None:
        """Let them finish."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


@contextlib.contextmanager
def load_on(served: Serving, doors: Sequence[Door] = DOORS) -> Iterator[Load]:
    """Clients of these doors, in turn, for the time of the block. Raises the first of their faults."""
    load = Load(served, doors)
    try:
        yield load
    finally:
        load.stop()
    if load.faults:
        raise load.faults[0]
