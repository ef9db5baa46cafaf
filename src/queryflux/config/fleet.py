"""Settings of processes that work together: control plane and workers."""

from typing import Literal, NamedTuple

from msgspec import Struct

from queryflux.config.kinds import AtLeastOne, Count
from queryflux.model.secret import Secret


class WorkerApiConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Serving workers."""

    enabled: bool = False
    """Whether workers are served (a control plane always does)."""
    secret: Secret | None = None
    """Secret that workers present."""
    secrets: tuple[Secret, ...] = ()
    """Further secrets, accepted while they are being changed."""
    snapshot_build_timeout_secs: AtLeastOne = 10
    """Longest time to build a snapshot before the last good one is served."""
    max_concurrent_snapshot_sends: AtLeastOne = 64
    """Snapshots sent at a time."""


class CallerTls(Struct, frozen=True, rename="camel", kw_only=True):
    """TLS towards another process of the fleet."""

    ca_file: str | None = None
    """PEM file with the authorities to trust; absent: the system's."""
    insecure_skip_verify: bool = False
    """Take any certificate."""
    server_name: str | None = None
    """Name that the certificate must carry; absent: the host of the address."""


class PeerBootstrapConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Copy the configuration from another worker while no control plane answers."""

    address: str
    """`host:port` that resolves to workers."""
    max_age_secs: AtLeastOne = 86400
    """Oldest configuration that is taken."""
    tls: CallerTls | None = None
    """TLS towards workers."""


class ControlPlaneConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Where a worker's configuration comes from."""

    url: str | None = None
    """Address of the control plane."""
    urls: tuple[str, ...] = ()
    """Several addresses, tried in turn."""
    secret: Secret | None = None
    """Secret to present."""
    tls: CallerTls | None = None
    """TLS towards the control plane."""
    poll_timeout_secs: AtLeastOne = 30
    """How long a wait for news lasts."""
    heartbeat_interval_secs: AtLeastOne = 10
    """How often a worker reports."""
    peer_bootstrap: PeerBootstrapConfig | None = None
    """Start from another worker's configuration; absent: off."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address, in the order in which they are tried at first."""
        return tuple(dict.fromkeys((*([self.url] if self.url else []), *self.urls)))


class CoordinationConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Sharing capacity between processes."""

    mode: Literal["controlPlane", "local"] = "controlPlane"
    """Whether a worker's limits hold for the fleet or for itself."""
    on_unavailable: Literal["failClosed", "localLimits"] = "failClosed"
    """What a worker does while nobody grants capacity."""
    acquire_timeout_secs: AtLeastOne = 5
    """Longest wait for a lease."""
    lease_renew_secs: AtLeastOne = 60
    """How often leases are renewed; at most a third of their expiry."""
    lease_expiry_secs: AtLeastOne = 300
    """A lease that is not renewed ends after this time."""
    sweep_interval_secs: AtLeastOne = 120
    """How often ended leases, and queries of processes that have gone, are swept."""
    claim_refresh_secs: AtLeastOne = 15
    """How often a process says that it answers for its queries; at most a third of the next."""
    claim_stale_secs: AtLeastOne = 60
    """A query whose process has not said so for this time may be taken over."""


class HistoryUplinkConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Sending records to the control plane."""

    enabled: bool = True
    """Whether records are sent."""
    endpoint: str | None = None
    """Where to: a base URL, to which `/worker/history` is added; absent: the control plane."""
    secret: Secret | None = None
    """Secret to present when the endpoint is another; absent: none."""
    tls: CallerTls | None = None
    """TLS towards an endpoint that is not the control plane."""
    flush_interval_secs: AtLeastOne = 2
    """How often records are sent."""
    max_batch_records: AtLeastOne = 500
    """Most records in one batch."""
    max_buffered_records: Count = 50000
    """Most records kept while nobody takes them; the oldest are dropped."""


class PeerAddress(NamedTuple):
    """``peerBootstrap.address`` taken apart."""

    host: str
    port: int


def peer_address(text: str) -> PeerAddress | None:
    """Host and port of ``host:port`` or ``[v6]:port``; None when it is neither."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    good = colon and name and (bracketed or ":" not in name) and not set(name) & set("/@?# []")
    if not good or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return PeerAddress(name, int(port))
