"""``queryflux``: what belongs to one process and does not travel to others, except ``queryHistory``."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from queryflux.config.fleet import (
    ControlPlaneConfig,
    CoordinationConfig,
    HistoryUplinkConfig,
    WorkerApiConfig,
)
from queryflux.config.kinds import AtLeastOne, Bytes, Count, Seconds
from queryflux.config.listeners import AdminApiConfig, FrontendsConfig, OpsListenerConfig
from queryflux.config.persistence import InMemoryPersistence, Persistence
from queryflux.model.secret import Secret


class MetricsConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """What is counted."""

    tags_deny_list: tuple[str, ...] = ()
    """Tag keys that do not become labels."""


class LoggingConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """How log lines look."""

    format: Literal["console", "json"] = "console"
    """Lines for people, or one JSON object a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""


class HistoryConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """The history kept in memory."""

    max_records: Count = 10000
    """Records kept in memory; the oldest go first. 0: none."""


class QueryHistoryConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """What records may contain, on every process of the fleet."""

    redaction: Literal["none", "maskLiterals", "metadata"] = "none"
    """`none`: SQL as written; `maskLiterals`: without values; `metadata`: no SQL."""


class CacheBackendConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Where cached results are stored."""

    scheme: str = "fs"
    """Storage service."""
    compression: Literal["none", "lz4", "zstd"] = "lz4"
    """How results are compressed."""
    options: Mapping[str, Secret] = field(default_factory=dict)
    """Options of the storage service."""
    cleanup_interval_secs: Count = 300
    """How often ended entries are removed; 0: never."""


class ProcessConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Settings of one process."""

    role: Literal["standalone", "controlPlane", "worker"] = "standalone"
    """What this process is in a fleet."""
    instance_id: str | None = None
    """Id of this process, in history and of its leases; no two may have the same. Absent: a new one with each
    start. QUERYFLUX_INSTANCE_ID wins."""
    worker_name: str | None = None
    """A worker's name, the same after a restart: ASCII; absent: the host's."""
    advertise_address: str | None = None
    """How other processes reach this one's Trino door: `host:port`, or a URL."""
    external_address: str | None = None
    """Public base URL, for the URIs that Trino clients follow; absent: taken from each request."""
    frontends: FrontendsConfig = FrontendsConfig()
    """The doors that clients use."""
    admin_api: AdminApiConfig = AdminApiConfig()
    """The operator port."""
    ops_listener: OpsListenerConfig | None = None
    """A worker's operator port."""
    persistence: Persistence = InMemoryPersistence()
    """Where state is kept."""
    max_statement_bytes: Bytes = 16 * 1024 * 1024
    """Longest statement, in bytes of UTF-8; a longer one is refused before it is read whole."""
    shutdown_drain_timeout_secs: Seconds = 30.0
    """How long running queries may take to end after SIGTERM."""
    logging: LoggingConfig = LoggingConfig()
    """How log lines look."""
    history: HistoryConfig = HistoryConfig()
    """The history kept in memory."""
    query_history: QueryHistoryConfig = QueryHistoryConfig()
    """What records may contain."""
    query_history_retention_days: AtLeastOne | None = None
    """Stored records older than this are deleted; absent: never."""
    metrics: MetricsConfig = MetricsConfig()
    """What is counted."""
    otlp_endpoint: str | None = None
    """Where traces are sent."""
    config_reload_interval_secs: Count | None = None
    """How often a database's configuration is read again; absent: 30; 0: only on notice."""
    distributed: bool | None = None
    """Share limits with other processes of the database; absent: with persistence `postgres`."""
    cache_backend: CacheBackendConfig | None = None
    """Where cached results are stored; absent: nowhere."""
    worker_api: WorkerApiConfig = WorkerApiConfig()
    """Serve workers."""
    control_plane: ControlPlaneConfig | None = None
    """A worker's control plane."""
    coordination: CoordinationConfig | None = None
    """Sharing capacity."""
    history_uplink: HistoryUplinkConfig | None = None
    """Sending records to the control plane."""

    @property
    def serves_workers(self) -> bool:
        """Whether this process has the worker API: a control plane always, a standalone when told."""
        return self.role == "controlPlane" or (self.role == "standalone" and self.worker_api.enabled)
