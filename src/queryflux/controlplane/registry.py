"""The workers of the fleet: what they report, what operators see of it, and what is wrong with it.

Rows are in the store, so that every control plane shows the workers of all. A worker that has started again
has a new row; its earlier ones, once offline, are not shown unless they are asked for, and go with every row
that was silent for a day.
"""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace
from starlette.responses import Response

from queryflux.controlplane.endpoints import Call, Endpoint, Param, answer
from queryflux.controlplane.errors import Refused, check_instance
from queryflux.controlplane.following_api import moment
from queryflux.controlplane.worker_app import WorkerAnswer, WorkerCall, WorkerEndpoint
from queryflux.fleet.paths import HEARTBEAT, REGISTER
from queryflux.fleet.registry import (
    LEAST_SILENCE_SECS,
    RETENTION_SECS,
    UNKNOWN_WORKER,
    Heartbeat,
    Limits,
    Phase,
    RegistryStore,
    RowState,
    UnknownVersion,
    WorkerRow,
    decode_heartbeat,
)
from queryflux.history.upkeep import Sweep
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

LOOK_SECS = 5.0
"""How often the fleet is looked at for the log."""
REMOVE_SECS = 600.0
SWEEP = "worker-registry"
MOST_NAMED = 5

ACCEPTED = WorkerAnswer(body=b"{}")


class UnknownWorker(Refused):
    """A heartbeat of an instance that has no row."""

    status = HTTPStatus.NOT_FOUND
    code = UNKNOWN_WORKER


class UnknownSchema(Refused):
    """A message of a version that is not known here."""

    code = "UNKNOWN_SCHEMA_VERSION"


class Current(NamedTuple):
    """The configuration that workers are to run now."""

    revision: str
    epoch: str
    sequence: int


class WorkerRegistry:
    """What control planes know of workers."""

    def __init__(
        self,
        store: RegistryStore,
        sweep: Sweep,
        published: Callable[[], Current | None],
        clock: Clock,
        *,
        own: str = "",
    ) -> None:
        """``published`` gives what workers are served now; None: nothing yet. ``own`` is the instance id of
        this process, which no worker may have."""
        self._store = store
        self._sweep = sweep
        self._published = published
        self._own = own
        self._clock = clock
        self._tasks = TaskGroup("worker registry")
        self._told: set[str] = set()
        self._states: dict[str, RowState] | None = None
        """As of the last look."""
        self._failing = False
        self._patient_until = 0.0

    def start(self) -> None:
        """Begin to look at the fleet, and to remove rows."""
        self._tasks.spawn("look", self._keep_looking())
        self._tasks.spawn("remove", self._keep_removing())

    async def close(self) -> None:
        """Look no more."""
        await self._tasks.close()

    # What workers call.

    def endpoints(self) -> list[WorkerEndpoint]:
        """Those of the worker API."""
        return [
            WorkerEndpoint("POST", REGISTER, self._register),
            WorkerEndpoint("POST", HEARTBEAT, self._heartbeat),
        ]

    async def _register(self, call: WorkerCall) -> WorkerAnswer:
        report = self._report(call)
        await self._tell_of_another(report)
        await self._store.register(report)
        log.info(
            "worker %s registered from %s: instance %s, version %s",
            *(report.worker_name, call.peer, report.instance_id, report.version or "unknown"),
        )
        return ACCEPTED

    async def _tell_of_another(self, report: Heartbeat) -> None:
        """Two processes with one instance id give back each other's leases. A process that calls twice is
        older the second time."""
        row = await self._store.row(report.instance_id)
        if row is None or row.state is not RowState.ONLINE:
            return
        known = row.report
        if report.uptime_secs < known.uptime_secs or report.worker_name != known.worker_name:
            log.warning(
                "worker %s registers as instance %s, under which worker %s was heard of %.0f s ago: "
                "unless that one was killed, give each process an instanceId of its own, or none",
                *(report.worker_name, report.instance_id, known.worker_name, row.seen_secs),
            )

    async def _heartbeat(self, call: WorkerCall) -> WorkerAnswer:
        report = self._report(call)
        if not await self._store.heartbeat(report):
            raise UnknownWorker(f"no worker has registered as {report.instance_id}", hint="register")
        return ACCEPTED

    async def ended(self, instance: str) -> None:
        """A worker's process is known to have ended, whether it has said so or not. Raises
        StoreUnavailable."""
        row = await self._store.row(instance)
        if row is not None and not row.stopped:
            last = replace(row.report, phase=Phase.STOPPED.value, number=row.report.number + 1)
            await self._store.heartbeat(last)

    def _report(self, call: WorkerCall) -> Heartbeat:
        report = read_report(call)
        check_instance(report.instance_id, self._own)
        return report

    # What operators ask.

    def admin_endpoints(self) -> list[Endpoint]:
        """Those of the admin API."""
        every = Param("all", "flag", "Earlier starts of workers that have started again, too.", default=False)
        return [
            Endpoint(
                "GET",
                "/admin/workers",
                "The workers of the fleet, which configuration each runs, and warnings.",
                self._workers,
                params=(every,),
            )
        ]

    async def _workers(self, call: Call) -> Response:
        return answer(await self.shown(every=call.params["all"]))

    async def shown(self, *, every: bool = False) -> dict[str, Any]:
        """The fleet as JSON. Raises StoreUnavailable."""
        published = self._published()
        rows = [row for row in await self._store.rows() if row.state is not RowState.GONE]
        latest = list(rows) if every else without_earlier_starts(rows)
        starts = [row.report.worker_name for row in rows]
        return {
            "revision": published.revision if published is not None else None,
            "workers": [
                {**self._worker(row, published), "starts": starts.count(row.report.worker_name)}
                for row in latest
            ],
            "warnings": warnings_of(rows),
        }

    def _worker(self, row: WorkerRow, published: Current | None) -> dict[str, Any]:
        report = row.report
        shown: dict[str, Any] = to_builtins(report)
        del shown["schemaVersion"], shown["number"]
        if report.confirmed_age_secs is not None:
            shown["confirmedAgeSecs"] = report.confirmed_age_secs + row.seen_secs
        why = why_not_current(report, published)
        return {
            **_rounded(shown),
            "online": row.state is RowState.ONLINE,
            "current": None if published is None else not why,
            "notCurrent": why or None,
            "lastSeenSecs": round(row.seen_secs, 3),
            "lastSeenAt": moment(self._clock.now() - row.seen_secs),
            "registeredAt": moment(self._clock.now() - row.registered_secs),
        }

    # Now and then.

    async def _keep_looking(self) -> None:
        while True:
            try:
                rows = await self._store.rows()
                self._failing = False
                if self._clock.monotonic() >= self._patient_until:
                    self._look(rows)
            except StoreUnavailable as error:
                if not self._failing:
                    log.warning("the workers of the fleet cannot be looked at: %s", error.message)
                self._failing = True
                # Nobody could be heard of meanwhile: when it is back, they get their time to report.
                self._patient_until = self._clock.monotonic() + LEAST_SILENCE_SECS
            except Exception:
                log.exception("looking at the workers of the fleet failed; trying again")
            await self._clock.sleep(LOOK_SECS)

    def _look(self, rows: Sequence[WorkerRow]) -> None:
        """Tell the log what has changed."""
        before, self._states = self._states, {row.report.instance_id: row.state for row in rows}
        for row in rows:
            if before is None or row.state is RowState.ONLINE:
                continue  # who was offline when we began is no news
            if before.get(row.report.instance_id, RowState.ONLINE) is RowState.ONLINE:
                _tell_offline(row)
        warnings = set(warnings_of(rows))
        for warning in sorted(warnings - self._told):
            log.warning("%s", warning)
        if self._told and not warnings:
            log.info("what was wrong with the fleet as a whole is over")
        self._told = warnings

    async def _keep_removing(self) -> None:
        while True:
            try:
                async with self._sweep(SWEEP, REMOVE_SECS * 0.9) as ours:
                    if ours and (count := await self._store.remove(RETENTION_SECS)):
                        log.info("%d workers were silent for a day and are forgotten", count)
            except StoreUnavailable as error:
                log.warning("%s: not done this time: %s", SWEEP, error.message)
            except Exception:
                log.exception("%s: not done this time", SWEEP)
            await self._clock.sleep(REMOVE_SECS)


def read_report(call: WorkerCall) -> Heartbeat:
    """The report in a call. Raises Refused, InvalidRequest."""
    try:
        report = decode_heartbeat(call.body)
    except UnknownVersion as error:
        raise UnknownSchema(f"a worker's report: {error}", hint="upgrade the control plane first") from None
    except ValueError as error:
        raise Refused(f"this is no report of a worker: {error}") from None
    if report.instance_id != call.instance:
        raise Refused(f"the report is of {report.instance_id}, and the call of {call.instance}")
    return report


def without_earlier_starts(rows: Sequence[WorkerRow]) -> list[WorkerRow]:
    """Rows but for those that are offline while the same worker has started again since. ``rows`` come as
    from RegistryStore."""
    seen: set[str] = set()
    kept = []
    for row in rows:
        if row.state is RowState.ONLINE or row.report.worker_name not in seen:
            kept.append(row)
        seen.add(row.report.worker_name)
    return kept


def why_not_current(report: Heartbeat, published: Current | None) -> str:
    """Why a worker does not run what is published; empty: it does, or nothing is published."""
    if published is None or report.active_revision == published.revision:
        return ""
    if report.rejected_revision == published.revision:
        return f"refused: {report.rejected_error or 'it does not say why'}"
    same_epoch = report.epoch == published.epoch and report.sequence is not None
    if same_epoch and report.sequence is not None and report.sequence > published.sequence:
        return (
            f"behind: the control plane is at {published.sequence}, the worker at {report.sequence}; after a "
            "restore of the database run queryflux migrate --new-epoch"
        )
    if same_epoch and report.sequence == published.sequence and report.active_revision:
        return (
            f"another configuration at {published.sequence} than the control plane has there: after a "
            "restore of the database run queryflux migrate --new-epoch"
        )
    if report.sync.error:
        return f"cannot follow: {report.sync.error}"
    return "not taken yet" if report.active_revision else "no configuration yet"


def warnings_of(rows: Sequence[WorkerRow]) -> list[str]:
    """What is wrong with the fleet as a whole: limits that several workers each have for themselves, names
    that several go by."""
    return [*_of_limits(rows), *_of_names(rows)]


def _of_names(rows: Sequence[WorkerRow]) -> list[str]:
    """A worker that was killed and has started again is two rows for a while, of which one is silent."""
    by_name: dict[str, list[WorkerRow]] = {}
    for row in rows:
        if row.state is RowState.ONLINE:
            by_name.setdefault(row.report.worker_name, []).append(row)
    return [
        f"several workers that run go by the name {name}: history cannot tell them apart "
        "(give each a workerName of its own)"
        for name, same in sorted(by_name.items())
        if sum(row.seen_secs < min(one.registered_secs for one in same) for row in same) > 1
    ]


def _of_limits(rows: Sequence[WorkerRow]) -> list[str]:
    online = [row.report for row in rows if row.state is RowState.ONLINE]
    local = sorted({report.worker_name for report in online if uses_local_limits(report)})
    if len(online) < 2 or not local:
        return []
    names = ", ".join(local[:MOST_NAMED])
    if len(local) > MOST_NAMED:
        names += f" and {len(local) - MOST_NAMED} more"
    return [
        "limits are not those of the fleet: of several workers online, these go by limits of their own: "
        f"{names} (coordination.mode local, or onUnavailable localLimits while nobody grants leases)"
    ]


def uses_local_limits(report: Heartbeat) -> bool:
    """Whether a worker admits queries on its own now."""
    return report.coordination.mode == Limits.LOCAL or report.coordination.state == Limits.LOCAL


def _rounded(value: Any) -> Any:
    """Lengths of time to the millisecond."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def _tell_offline(row: WorkerRow) -> None:
    report = row.report
    if row.stopped:
        log.info("worker %s has stopped (instance %s)", report.worker_name, report.instance_id)
    else:
        log.warning(
            "worker %s is offline: not heard of for %.0f s (instance %s)",
            *(report.worker_name, row.seen_secs, report.instance_id),
        )
