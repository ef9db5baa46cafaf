"""What workers report of themselves, and the rows that control planes keep of it.

A worker registers when it starts and sends the same report, brought up to date, every
``heartbeatIntervalSecs`` and whenever its configuration changes. Lengths of time travel as seconds up to the
moment of the report, never as moments: clocks need not agree. A store measures how long ago it heard of a
worker by its own clock.

A row is of one start of a worker: a restart is a new instance id, and so a new row under the same name.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

SCHEMA_VERSION = 1
RETENTION_SECS = 86400.0
"""Rows of workers that were not heard of for so long are removed."""
MOST_STARTS = 100
"""Rows of one worker's name that are kept though they have fallen silent, the latest: a worker that dies as
often as it starts makes one each time."""
LEAST_SILENCE_SECS = 30.0
MISSED_INTERVALS = 3
UNKNOWN_WORKER = "UNKNOWN_WORKER"
"""Code of the answer to a heartbeat of an instance that has no row: it has to register."""
MAX_TEXT = 4000
MAX_ITEMS = 100

Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Text = Annotated[str, Meta(max_length=MAX_TEXT, pattern=r"^[^\x00]*\Z")]
"""Without NUL characters, which PostgreSQL does not store. Names have no control characters at all: they
stand in log lines."""
Amount = Annotated[int, Meta(ge=0, le=2**53)]
Secs = Annotated[float, Meta(ge=0, le=1e12)]


class Phase(StrEnum):
    """What a worker is at."""

    STARTING = "starting"
    """It has no configuration yet, or its doors are not open."""
    SERVING = "serving"
    DRAINING = "draining"
    """It takes no new queries."""
    STOPPED = "stopped"
    """Its last words: nothing will be heard of this instance any more."""


class Sync(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a worker fares in following its control plane. ``failures`` counts since its start; ``error`` says
    what is wrong now, for ``failing_secs``, and is empty when nothing is."""

    last_success_secs: Secs | None = None
    """How long ago a control plane last answered; None: none has yet."""
    failures: Amount = 0
    error: Text = ""
    failing_secs: Secs | None = None


class Limits(StrEnum):
    """Whose limits hold on a worker at the moment."""

    FLEET = "fleet"
    LOCAL = "local"
    UNAVAILABLE = "unavailable"
    """Those of the fleet, but nobody grants leases now: queries with a limit wait."""


class Coordination(Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker's policy for limits, as its file has it, and what holds now (Limits)."""

    mode: Text = "controlPlane"
    on_unavailable: Text = "failClosed"
    state: Text = Limits.FLEET.value
    slots_held: Amount = 0
    """Queries that run, each in a slot of its own."""
    leases_held: Amount = 0
    leases_lost: Amount = 0


class Uplink(Struct, frozen=True, kw_only=True, rename="camel"):
    """Records of finished queries on their way to the control plane, since the start of the worker.
    ``waiting`` are those not acknowledged yet; ``error`` says what is wrong now."""

    enabled: bool = True
    delivered: Amount = 0
    dropped: Amount = 0
    rejected: Amount = 0
    waiting: Amount = 0
    error: Text = ""


class Frontend(Struct, frozen=True, kw_only=True, rename="camel"):
    """A door that is open."""

    name: Name
    port: Annotated[int, Meta(ge=0, le=65535)]


class Heartbeat(Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker's whole report, sent to register as well. A reader tolerates fields that it does not know; one
    that is left out has its default."""

    schema_version: int = SCHEMA_VERSION
    instance_id: Name
    worker_name: Name
    number: Amount = 0
    """Reports of an instance are numbered: one that comes late changes nothing."""
    version: Text = ""
    advertise_address: Text | None = None
    heartbeat_interval_secs: Annotated[float, Meta(gt=0, le=1e12)] = 10.0
    phase: Text = Phase.SERVING.value
    uptime_secs: Secs = 0.0
    active_revision: Text | None = None
    """None: it has no configuration yet."""
    epoch: Text | None = None
    sequence: Amount | None = None
    rejected_revision: Text | None = None
    """One that it could not use, and will not fetch again."""
    rejected_error: Text = ""
    config_source: Text | None = None
    """``controlPlane`` or ``peer``."""
    stale: bool = False
    """Nobody has confirmed the configuration yet since it was copied, or within its time."""
    confirmed_age_secs: Secs | None = None
    """How long ago a control plane confirmed it."""
    sync: Sync = Sync()
    coordination: Coordination = Coordination()
    history_uplink: Uplink = Uplink()
    frontends: Annotated[tuple[Frontend, ...], Meta(max_length=MAX_ITEMS)] = ()
    warnings: Annotated[tuple[Text, ...], Meta(max_length=MAX_ITEMS)] = ()


class _Versioned(Struct, rename="camel"):
    schema_version: int = SCHEMA_VERSION


_decode = msgspec.json.Decoder(Heartbeat).decode
_decode_version = msgspec.json.Decoder(_Versioned).decode


def encode_heartbeat(report: Heartbeat) -> bytes:
    """A report as it travels. Texts are made such that a control plane takes them: an error message that is
    too long must not cost the report."""
    return msgspec.json.encode(_fitted(msgspec.to_builtins(report)))


def _fitted(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT].replace("\0", " ").encode(errors="replace").decode()
    if isinstance(value, dict):
        return {key: _fitted(item) for key, item in value.items()}
    return [_fitted(item) for item in value[:MAX_ITEMS]] if isinstance(value, list | tuple) else value


class UnknownVersion(ValueError):
    """A report of a version whose fields are not known here."""


def decode_heartbeat(data: bytes) -> Heartbeat:
    """A report that has arrived. Raises ValueError that says what is wrong with it, UnknownVersion if that is
    its version."""
    try:
        version = _decode_version(data).schema_version
        if version != SCHEMA_VERSION:
            raise UnknownVersion(f"version {version} is not known here, only {SCHEMA_VERSION}")
        return _decode(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class RowState(StrEnum):
    """Where a worker's row stands."""

    ONLINE = "online"
    OFFLINE = "offline"
    GONE = "gone"
    """There is no row, or it is about to be removed."""


class RowEvent(StrEnum):
    """What happens to it."""

    REGISTER = "register"
    HEARTBEAT = "send a heartbeat"
    STOP = "say that it stops"
    SILENCE = "miss three heartbeats"
    RETENTION = "be silent for a day"


ROW_TRANSITIONS: Mapping[tuple[RowState, RowEvent], RowState] = {
    (RowState.GONE, RowEvent.REGISTER): RowState.ONLINE,
    (RowState.GONE, RowEvent.HEARTBEAT): RowState.GONE,  # it is told to register
    (RowState.GONE, RowEvent.STOP): RowState.GONE,
    (RowState.ONLINE, RowEvent.REGISTER): RowState.ONLINE,  # its first call was done, and not answered
    (RowState.ONLINE, RowEvent.HEARTBEAT): RowState.ONLINE,
    (RowState.ONLINE, RowEvent.STOP): RowState.OFFLINE,
    (RowState.ONLINE, RowEvent.SILENCE): RowState.OFFLINE,
    (RowState.OFFLINE, RowEvent.REGISTER): RowState.ONLINE,
    (RowState.OFFLINE, RowEvent.HEARTBEAT): RowState.ONLINE,
    (RowState.OFFLINE, RowEvent.STOP): RowState.OFFLINE,
    (RowState.OFFLINE, RowEvent.SILENCE): RowState.OFFLINE,
    (RowState.OFFLINE, RowEvent.RETENTION): RowState.GONE,
}
"""What is missing cannot happen: only a worker that is offline has been silent for a day, and a row that is
not there cannot become silent."""


def after(state: RowState, event: RowEvent) -> RowState:
    """The state that follows. Raises LookupError where the table has no such pair."""
    try:
        return ROW_TRANSITIONS[state, event]
    except KeyError:
        raise LookupError(f"a worker that is {state.value} cannot {event.value}") from None


class WorkerRow(Struct, frozen=True, kw_only=True):
    """One start of a worker as a store knows it, both ages by the store's clock."""

    report: Heartbeat
    registered_secs: float
    """Seconds since it registered."""
    seen_secs: float
    """Seconds since its latest report."""

    @property
    def stopped(self) -> bool:
        """It has said good-bye."""
        return self.report.phase == Phase.STOPPED

    @property
    def silence_secs(self) -> float:
        """So long after its latest report it is offline: three intervals, at least 30 s."""
        intervals = MISSED_INTERVALS * self.report.heartbeat_interval_secs
        return min(max(intervals, LEAST_SILENCE_SECS), RETENTION_SECS)

    @property
    def state(self) -> RowState:
        """What has become of it since its latest report."""
        state = after(RowState.GONE, RowEvent.REGISTER)
        if self.stopped:
            state = after(state, RowEvent.STOP)
        if self.seen_secs >= self.silence_secs:
            state = after(state, RowEvent.SILENCE)
        if self.seen_secs >= RETENTION_SECS:
            state = after(state, RowEvent.RETENTION)
        return state


class RegistryStore(Protocol):
    """Rows of workers; those of every control plane of one database. What every store holds:
    tests/contract/test_registry_store.py. Every call raises StoreUnavailable."""

    async def register(self, report: Heartbeat) -> None:
        """Keep a row for this start of a worker, in place of an earlier row of the same instance id; forget
        the earliest starts of its name beyond MOST_STARTS."""

    async def heartbeat(self, report: Heartbeat) -> bool:
        """Bring a row up to date. A report that is older than what the row says changes nothing. False:
        there is no row, and the worker has to register."""

    async def row(self, instance_id: str) -> WorkerRow | None:
        """That of one start of a worker, if there is one."""

    async def rows(self) -> Sequence[WorkerRow]:
        """All rows, by worker name, the latest start of each first."""

    async def remove(self, silent_secs: float) -> int:
        """Delete rows whose latest report is so old; how many."""
