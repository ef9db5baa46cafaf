"""Rows of workers in memory: they register again when this process starts again."""

from collections.abc import Sequence
from dataclasses import dataclass

from queryflux.fleet.registry import MOST_STARTS, Heartbeat, RegistryStore, WorkerRow
from queryflux.runtime.clock import Clock


@dataclass(slots=True)
class _Kept:
    report: Heartbeat
    registered: float
    seen: float


class MemoryRegistryStore(RegistryStore):
    """The workers of one control plane."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[str, _Kept] = {}

    async def register(self, report: Heartbeat) -> None:
        now = self._clock.monotonic()
        self._rows[report.instance_id] = _Kept(report, now, now)
        name = report.worker_name
        silent = [
            row
            for kept in self._rows.values()
            if kept.report.worker_name == name and (row := _row(kept, now)).seen_secs >= row.silence_secs
        ]
        silent.sort(key=lambda row: row.registered_secs)
        for row in silent[MOST_STARTS:]:
            del self._rows[row.report.instance_id]

    async def heartbeat(self, report: Heartbeat) -> bool:
        row = self._rows.get(report.instance_id)
        if row is None:
            return False
        if report.number > row.report.number:
            row.report, row.seen = report, self._clock.monotonic()
        return True

    async def row(self, instance_id: str) -> WorkerRow | None:
        kept = self._rows.get(instance_id)
        return _row(kept, self._clock.monotonic()) if kept is not None else None

    async def rows(self) -> Sequence[WorkerRow]:
        now = self._clock.monotonic()
        kept = sorted(self._rows.values(), key=lambda row: (row.report.worker_name, -row.registered))
        return [_row(one, now) for one in kept]

    async def remove(self, silent_secs: float) -> int:
        now = self._clock.monotonic()
        old = [name for name, row in self._rows.items() if now - row.seen >= silent_secs]
        for name in old:
            del self._rows[name]
        return len(old)


def _row(kept: _Kept, now: float) -> WorkerRow:
    return WorkerRow(report=kept.report, registered_secs=now - kept.registered, seen_secs=now - kept.seen)
