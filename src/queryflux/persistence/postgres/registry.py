"""Rows of workers in PostgreSQL: every control plane of the database sees all of them.

The columns say what anybody may look for; ``status`` is the whole report.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from queryflux.fleet.registry import (
    LEAST_SILENCE_SECS,
    MISSED_INTERVALS,
    MOST_STARTS,
    Heartbeat,
    RegistryStore,
    WorkerRow,
)
from queryflux.persistence.postgres.capacity import asking

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pool

_VALUES = "$1, $2, $3, $4, $5, $6, $7::jsonb"
REGISTER = f"""
INSERT INTO worker_registry AS row (instance_id, worker_name, advertise_address, version, active_revision,
    heartbeat_interval_secs, status, registered_at, last_seen_at)
VALUES ({_VALUES}, clock_timestamp(), clock_timestamp())
ON CONFLICT (instance_id) DO UPDATE SET
    worker_name = excluded.worker_name, advertise_address = excluded.advertise_address,
    version = excluded.version, active_revision = excluded.active_revision,
    heartbeat_interval_secs = excluded.heartbeat_interval_secs, status = excluded.status,
    registered_at = excluded.registered_at, last_seen_at = excluded.last_seen_at
"""  # noqa: S608
FORGET = """
DELETE FROM worker_registry WHERE instance_id IN (
    SELECT instance_id FROM worker_registry
    WHERE worker_name = $1
        AND extract(epoch FROM clock_timestamp() - last_seen_at) >= greatest($2, $3 * heartbeat_interval_secs)
    ORDER BY registered_at DESC OFFSET $4)
"""
HEARTBEAT = """
UPDATE worker_registry
SET worker_name = $2, advertise_address = $3, version = $4, active_revision = $5,
    heartbeat_interval_secs = $6, status = $7::jsonb, last_seen_at = clock_timestamp()
WHERE instance_id = $1 AND coalesce((status ->> 'number')::numeric, -1) < $8
RETURNING true
"""
KNOWN = "SELECT true FROM worker_registry WHERE instance_id = $1"
_SELECT = """
SELECT instance_id, worker_name, advertise_address, version, active_revision, heartbeat_interval_secs, status,
    extract(epoch FROM clock_timestamp() - registered_at)::float8,
    extract(epoch FROM clock_timestamp() - last_seen_at)::float8
FROM worker_registry
"""
ROW = f"{_SELECT} WHERE instance_id = $1"
ROWS = f'{_SELECT} ORDER BY worker_name COLLATE "C", registered_at DESC'
REMOVE = """
WITH removed AS (
    DELETE FROM worker_registry WHERE last_seen_at <= clock_timestamp() - $1::interval RETURNING 1)
SELECT count(*) FROM removed
"""
UNREADABLE = "its report cannot be read: it was stored by another version"


class PostgresRegistryStore(RegistryStore):
    """The workers of a fleet."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def register(self, report: Heartbeat) -> None:
        async with asking(self._pool) as connection:
            await connection.execute(REGISTER, *_values(report))
            silence = (LEAST_SILENCE_SECS, MISSED_INTERVALS)
            await connection.execute(FORGET, report.worker_name, *silence, MOST_STARTS)

    async def heartbeat(self, report: Heartbeat) -> bool:
        async with asking(self._pool) as connection:
            newer = await connection.fetchval(HEARTBEAT, *_values(report), report.number)
            return bool(newer or await connection.fetchval(KNOWN, report.instance_id))

    async def row(self, instance_id: str) -> WorkerRow | None:
        async with asking(self._pool) as connection:
            row = await connection.fetchrow(ROW, instance_id)
        return _row(row) if row is not None else None

    async def rows(self) -> Sequence[WorkerRow]:
        async with asking(self._pool) as connection:
            return [_row(row) for row in await connection.fetch(ROWS)]

    async def remove(self, silent_secs: float) -> int:
        async with asking(self._pool) as connection:
            return int(await connection.fetchval(REMOVE, timedelta(seconds=silent_secs)))


def _values(report: Heartbeat) -> tuple[Any, ...]:
    return (
        report.instance_id,
        report.worker_name,
        report.advertise_address,
        report.version,
        report.active_revision,
        report.heartbeat_interval_secs,
        msgspec.json.encode(report).decode(),
    )


def _row(row: Sequence[Any]) -> WorkerRow:
    instance, name, address, version, revision, interval, status, registered, seen = row
    columns = {
        "instance_id": instance,
        "worker_name": name,
        "advertise_address": address,
        "version": version,
        "active_revision": revision,
        "heartbeat_interval_secs": interval,
    }
    try:
        named = {"instanceId": instance, "workerName": name}
        report = replace(msgspec.convert({**msgspec.json.decode(status), **named}, Heartbeat), **columns)
    except (msgspec.ValidationError, TypeError):
        report = Heartbeat(**columns, warnings=(UNREADABLE,))
    # The clock of a database may be put back.
    return WorkerRow(report=report, registered_secs=max(0.0, registered), seen_secs=max(0.0, seen))
