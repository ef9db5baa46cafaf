"""Looks for places that nobody uses: lease rows without a query, counters above their rows."""

import threading
from typing import Any

import psycopg

from tests.chaos.faults import Faults
from tests.chaos.fleet import OLDER, Fleet
from tests.chaos.worker import EXPIRY_SECS, SWEEP_SECS

BOUND_SECS = EXPIRY_SECS + 2 * SWEEP_SECS
TOLERANCE_SECS = 1.0
"""Of looking now and then."""
EVERY_SECS = 0.5
LOOK = """
SELECT c.cluster_name, c.leased - count(l.query_id), array_remove(array_agg(l.query_id), NULL)
FROM cluster_capacity_counters AS c LEFT JOIN cluster_capacity_leases AS l USING (cluster_name)
GROUP BY c.cluster_name, c.leased
"""


class Watch:
    """A thread that looks every so often. ``longest``: for how long a place was lost, times in which a
    fault was under way left out."""

    def __init__(self, fleet: Fleet, faults: Faults) -> None:
        self._fleet = fleet
        self._faults = faults
        self._idle: dict[tuple[str, str], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self.longest = 0.0
        self.violations: list[str] = []
        self.error: BaseException | None = None

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECS):
            try:
                self.look()
            except psycopg.Error:
                self._idle.clear()  # it is being restarted
            except BaseException as error:
                self.error = error
                raise

    def look(self) -> None:
        """Once."""
        rows = self._fleet.database.rows(LOOK)
        running = set(self._fleet.engine.state()["ids"])
        now = self._faults.healthy
        self._idle = {what: self._idle.get(what, now) for what in self._lost(rows, running)}
        for what, seen in self._idle.items():
            seconds = now - seen
            self.longest = max(self.longest, seconds)
            if seconds > BOUND_SECS + TOLERANCE_SECS:
                self.violations.append(f"a place of {what[0]} is lost for {seconds:.1f} s ({what[1]})")

    def _lost(self, rows: list[tuple[Any, ...]], running: set[str]) -> list[tuple[str, str]]:
        """What looks lost at one moment: (cluster, query id or drift). An older process renews whatever is
        its own, also what it was not told of."""
        lost = []
        for cluster, drift, ids in rows:
            if drift > 0:
                lost.append((cluster, f"counter too high after loss {self._faults.losses}"))
            lost += [(cluster, one) for one in ids if one not in running and not one.startswith(OLDER)]
        return lost
