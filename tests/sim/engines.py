"""The engines, and the database as they see it: a query that runs has a lease, or lost it for a reason."""

from collections.abc import Iterable

from queryflux.admission.port import Lease
from tests.chaos.judge import Judge
from tests.sim.database import ModelDatabase, Row, is_retaken
from tests.sim.process import EXPIRY_SECS, RENEW_SECS, Clients
from tests.sim.world import World

OUT_OF_REACH_SECS = EXPIRY_SECS - RENEW_SECS - 1.6
"""A process that renewed so lately cannot have lost a lease by expiry: a renewal begins every second, is
repeated after a quarter of one, and takes some time."""


class Engines:
    """What runs, in all processes."""

    def __init__(self, world: World, database: ModelDatabase, judge: Judge) -> None:
        self.world = world
        self.database = database
        self.judge = judge
        self._marks: dict[str, str] = {}
        """Queries whose lease is gone, and why."""
        self._started: dict[str, float] = {}
        database.on_lost = self._lost
        database.on_granted = self._granted

    def witnessed(self) -> Iterable[Clients]:
        """The processes that live."""
        raise NotImplementedError

    def start(self, process: Clients, lease: Lease, began: float) -> None:
        """A query begins."""
        self.world.mark("start", lease.query_id)
        if process.loop.dead:
            return
        why = self._marks.get(lease.query_id)
        causes = (why,) if why is not None else ()
        self.judge.start(lease.cluster, lease.query_id, process.instance, began, causes)
        self._started[lease.query_id] = self.world.now
        row = self.database.rows.get(lease.query_id)
        if why is not None:
            if why == "expired" and self.world.now - process.stopped_at > EXPIRY_SECS:
                self.violate(f"{lease} starts on a lease that had run out, in a process that was not stopped")
        elif row is None or (row.cluster, row.instance) != (lease.cluster, process.instance):
            self.violate(f"{lease} starts without a lease ({row})")

    def end(self, process: Clients, lease: Lease) -> None:
        """It has ended."""
        self.world.mark("end", lease.query_id)
        if not process.loop.dead:
            self.ended(lease.query_id)

    def ended(self, query_id: str) -> None:
        """A query has ended, whatever became of its process."""
        self.judge.end(query_id)
        self._started.pop(query_id, None)
        if query_id not in self._marks and query_id not in self.database.rows:
            self.violate(f"the lease of {query_id} is gone before it ends")

    def violate(self, what: str) -> None:
        """Something that must never be."""
        self.judge.violate(f"{self.world.now:.3f} {what}")

    def _granted(self, query_id: str, limit: int) -> None:
        if not is_retaken(limit):
            self._marks.pop(query_id, None)

    def _lost(self, query_id: str, row: Row, why: str) -> None:
        self.world.mark("lost", query_id, why)
        process = next((one for one in self.witnessed() if one.instance == row.instance), None)
        started = self._started.get(query_id)
        if why == "expired" and process is not None and started is not None:
            reached = max(process.witness.renewed, self.world.now - EXPIRY_SECS)
            if self.world.now - max(started, reached) < OUT_OF_REACH_SECS and (
                process.stopped_at < started or process.witness.renewed > process.stopped_at
            ):
                self.violate(f"the lease of {query_id} runs out while its process is in reach")
        self._marks[query_id] = why
        self.judge.excuse_one(query_id, why)
