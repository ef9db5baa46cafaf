"""What must hold in a fleet, whatever happens. Each function says what is wrong; most look at one worker."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from queryflux.fleet.registry import RowState
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.history.redaction import Redaction
from queryflux.worker.state import ConfigState
from tests.sim.edits import Edit
from tests.sim.tables import FleetDatabase
from tests.sim.worker import LITERAL, WorkerProcess

CALLS_AT_FIRST, CALLS_A_SECOND = 25, 2.2
"""More calls about the configuration than these make a worker one that asks without end."""
DRIFT = 0.05
"""By so much two clocks may differ in what they call a second, both ways together."""


class Path:
    """The configurations that one worker has used, in order."""

    def __init__(self) -> None:
        self._at: tuple[str, int, str] | None = None
        self._left: set[str] = set()

    def step(self, snapshot: WorkerSnapshot) -> str:
        """Another one is used; what is wrong with that, or nothing."""
        before, self._at = self._at, (snapshot.epoch, snapshot.sequence, snapshot.revision)
        if before is None:
            return ""
        if snapshot.epoch in self._left:
            return f"goes back to {snapshot.epoch}"
        if snapshot.epoch != before[0]:
            self._left.add(before[0])
            return ""
        if snapshot.sequence <= before[1]:
            return f"goes from sequence {before[1]} to {snapshot.sequence} of {snapshot.epoch}"
        return ""


def of_worker(
    worker: WorkerProcess, said_at: Mapping[str, float], edits: Mapping[str, Edit]
) -> Iterator[str]:
    """What is wrong with what a worker says of its configuration. ``said_at``: when a control plane was told
    last that a revision is the stored one; ``edits`` by revision."""
    host, status = worker.host, worker.sync.status
    now = host.world.now
    used = worker.pipeline.active
    if (used.revision if used is not None else None) != status.revision:
        yield f"runs {used.revision if used is not None else None} and says {status.revision}"
    if status.revision is not None and not status.stale and status.revision not in host.told:
        yield f"calls {status.revision} fresh, and no control plane has named it"
    if status.stale is (status.source != "peer"):
        yield f"is stale: {status.stale}, with a configuration from {status.source}"
    if status.revision is not None and status.confirmed_age is not None:
        truth = now - said_at[status.revision]
        if status.confirmed_age < truth * (1 - DRIFT) - host.transit - 0.5:
            yield f"calls {status.revision} confirmed {status.confirmed_age:.1f} s ago; it was {truth:.1f} s"
    if status.rejected is not None and edits[status.rejected.revision].usable(host.schema_version):
        yield f"has rejected {status.rejected.revision}, which is good: {status.rejected.error}"
    if status.revision is not None and not edits[status.revision].usable(host.schema_version):
        yield f"runs {status.revision}, which it cannot use"


def of_compilations(worker: WorkerProcess, edits: Mapping[str, Edit]) -> Iterator[str]:
    """A revision that was rejected is not tried again where it stands."""
    for (epoch, sequence, revision), times in Counter(worker.compiled).items():
        if times > 1 and not edits[revision].usable(worker.host.schema_version):
            yield f"tried {revision} at {sequence} of {epoch} {times} times"


def of_calls(worker: WorkerProcess, lived_secs: float) -> Iterator[str]:
    """It does not ask for its configuration without end."""
    calls = worker.host.config_calls
    if calls > CALLS_AT_FIRST + CALLS_A_SECOND * lived_secs:
        yield f"asked for its configuration {calls} times in {lived_secs:.0f} s"


def of_convergence(
    worker: WorkerProcess, revision: str, edit: Edit, position: tuple[str, int]
) -> Iterator[str]:
    """It runs what is stored, or has rejected it if it cannot, and knows that."""
    status = worker.sync.status
    usable = edit.usable(worker.host.schema_version)
    wanted = {ConfigState.FRESH} if usable else {ConfigState.REJECTED, ConfigState.UNCONFIGURED}
    if status.state not in wanted:
        yield f"is {status.state.value} in the end ({status})"
    elif usable and status.revision != revision:
        yield f"runs {status.revision} in the end and not {revision} ({status})"
    elif not usable and (status.rejected is None or status.rejected.revision != revision):
        yield f"has rejected {status.rejected} in the end and not {revision}"
    if status.position != position:
        yield f"is at {status.position} in the end and not at {position}"
    if status.failure or status.behind:
        yield f"complains in the end: {status.failure} {status.behind}"


def of_records(worker: WorkerProcess, database: FleetDatabase, *, ended_well: bool) -> Iterator[str]:
    """Each query that has ended has a record, or is counted as having none; one that is counted may have been
    stored after all, by a call that was not answered."""
    finished = worker.finished
    kept = {record.proxy_query_id for record in database.records if record.proxy_query_id in finished}
    delivery = worker.delivery
    stored, lost = delivery["stored"], delivery["dropped"] + delivery["rejected"]
    missing = len(finished) - len(kept)
    if ended_well and delivery["waiting"]:
        yield f"keeps {delivery['waiting']} records to itself"
    if missing > lost + delivery["waiting"]:
        yield f"lacks {missing} of {len(finished)} records and counts {delivery}"
    if stored > len(kept):
        yield f"was told that {stored} records are stored, and there are {len(kept)}"
    if len(finished) != stored + lost + delivery["waiting"]:
        yield f"has lost count: {len(finished)} records, {delivery}"


def of_history(database: FleetDatabase, workers: Sequence[WorkerProcess]) -> Iterator[str]:
    """There are no two records of a query, and none says more than it may."""
    for query_id, times in Counter(record.proxy_query_id for record in database.records).items():
        if times > 1:
            yield f"there are {times} records of {query_id}"
    policies = {query_id: policy for worker in workers for query_id, policy in worker.finished.items()}
    for record in database.records:
        policy = policies.get(record.proxy_query_id, Redaction.NONE)
        said = record.sql_text or ""
        if (policy is not Redaction.NONE and LITERAL in said) or (policy is Redaction.METADATA and said):
            yield f"the record of {record.proxy_query_id} says {said!r} under {policy.value}"
        if record.worker is None or not (record.instance_id or "").startswith(record.worker):
            yield f"the record of {record.proxy_query_id} is of {record.worker} and {record.instance_id}"


def of_registry(shown: Mapping[str, object], workers: Sequence[WorkerProcess]) -> Iterator[str]:
    """Operators see every worker, and that it runs what it should."""
    rows = shown["workers"]
    assert isinstance(rows, list)
    by_instance = {row["instanceId"]: row for row in rows}
    for worker in workers:
        row = by_instance.pop(worker.instance, None)
        if row is None or not row["online"]:
            yield f"is not seen as {RowState.ONLINE.value}"
        elif row["activeRevision"] != worker.sync.status.revision:
            yield f"is seen at {row['activeRevision']} and is at {worker.sync.status.revision}"
        elif not row["current"] and worker.sync.status.rejected is None:
            yield f"is not seen as current: {row['notCurrent']}"
    for instance, row in by_instance.items():
        if row["online"] and row["lastSeenSecs"] > row["heartbeatIntervalSecs"] * 3 + 31:
            yield f"{instance} is seen as online, and silent for {row['lastSeenSecs']} s"
