"""Cluster groups: which clusters serve together, in which order, and how much they take."""

from collections.abc import Mapping

from msgspec import Struct, field

from queryflux.config.clusters import EngineKey
from queryflux.config.kinds import AtLeastOne, Count, Percent, Seconds

DEFAULT_CAPACITY_WAIT_SECS = 300.0


class RoundRobin(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="roundRobin"):
    """Each eligible member in turn."""


class LeastLoaded(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="leastLoaded"):
    """The member that runs the fewest queries; the earliest of equals."""


class Failover(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="failover"):
    """The first eligible member in the order of `members`."""


class EngineAffinity(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="engineAffinity"
):
    """The first engine of a list that has an eligible member."""

    preference: tuple[EngineKey, ...]
    """Engines, the most wanted first."""


class Weighted(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="weighted"):
    """Members in proportion to their weights."""

    weights: Mapping[str, Count]
    """Weight of each cluster; one that is not listed weighs 1."""


class PythonStrategy(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="pythonScript"):
    """A script chooses: `select_cluster(candidates)`."""

    script: str | None = None
    """The script itself."""
    script_file: str | None = None
    """File with the script; wins over `script`."""


Strategy = RoundRobin | LeastLoaded | Failover | EngineAffinity | Weighted | PythonStrategy


class CircuitBreakerConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """When a member that keeps failing is left alone for a while."""

    window_secs: AtLeastOne = 60
    """How far back outcomes count."""
    min_requests: AtLeastOne = 10
    """Outcomes needed before it may open; at most 10000."""
    failure_rate_percent: Percent = 50
    """Failures that open it."""
    timeout_rate_percent: Percent = 25
    """Time-outs that open it."""
    initial_backoff_secs: AtLeastOne = 30
    """First wait before a probe."""
    max_backoff_secs: AtLeastOne = 300
    """Longest wait before a probe."""


class GroupAuthorization(Struct, frozen=True, rename="camel", kw_only=True):
    """Who may use a group, with `authorization.provider: none`. Both lists empty: everybody."""

    allow_groups: tuple[str, ...] = ()
    """Members of any of these groups may."""
    allow_users: tuple[str, ...] = ()
    """These users may."""


class GroupCache(Struct, frozen=True, rename="camel", kw_only=True):
    """Keeping results of a group's queries."""

    enabled: bool = False
    """Whether results are kept."""
    ttl_secs: Count = 300
    """How long a result is good for."""
    max_entry_size_mb: AtLeastOne | None = None
    """Largest result that is kept, in MiB; absent: any."""


class ClusterGroupConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Clusters that serve together."""

    members: tuple[str, ...]
    """Clusters of the group; their order matters to `failover`."""
    enabled: bool = True
    """Whether queries may go there."""
    strategy: Strategy = RoundRobin()
    """How a member is chosen."""
    max_running_queries: Count | None = None
    """Queries at a time on *each* member without a value of its own; absent: no limit; 0: none, refused."""
    max_queued_queries: Count | None = None
    """Queries that may wait; absent: no limit; 0: none waits."""
    capacity_wait_timeout_secs: Seconds = DEFAULT_CAPACITY_WAIT_SECS
    """Longest wait for room; 0 means 300 too."""
    query_timeout_secs: Seconds | None = None
    """Longest run of a query, from admission to its last row; absent or 0: no limit."""
    idle_in_transaction_timeout_secs: Seconds = 60.0
    """A transaction that does nothing for so long is rolled back; 0: never."""
    authorization: GroupAuthorization = GroupAuthorization()
    """Who may use the group."""
    default_tags: Mapping[str, str | None] = field(default_factory=dict)
    """Tags of every query; the client's own win."""
    translation_scripts: tuple[str, ...] = ()
    """Names of `scripts` that change translated SQL, after those of `translation.pythonScripts`."""
    circuit_breaker: CircuitBreakerConfig | None = None
    """Leave failing members alone; absent: off."""
    cache: GroupCache | None = None
    """Keep results; absent: off."""

    @property
    def capacity_wait_secs(self) -> float:
        """The wait that applies: 0 is read as the default, as it always was."""
        return self.capacity_wait_timeout_secs or DEFAULT_CAPACITY_WAIT_SECS
