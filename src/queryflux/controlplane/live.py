"""What this process is doing now, as operators see it. The app hands in who knows; nothing here does."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from queryflux.config.clusters import ClusterConfig


class ClusterState(Struct, frozen=True, kw_only=True):
    """A cluster in one of its groups. ``max_running_queries`` is the limit in force; None: no limit."""

    group_name: str
    cluster_name: str
    engine_type: str
    endpoint: str | None
    running_queries: int
    queued_queries: int
    """Queries that wait in the group; they wait for no member in particular."""
    max_running_queries: int | None
    is_healthy: bool
    unhealthy_reason: str | None
    enabled: bool
    leases: int | None = None
    """Leases out in the whole fleet when they were last read; None: limits are this process's own."""
    engine_running_queries: int | None = None
    """What the engine itself said it ran, whoever sent it there; None: it was not asked."""


class RunningQuery(Struct, frozen=True, kw_only=True):
    """A query that has not ended. ``state`` is ``executing`` or ``queued``; times are seconds."""

    id: str
    backend_query_id: str | None
    submitted_by: str
    group: str
    cluster: str | None
    sql_preview: str
    state: str
    frontend_protocol: str
    created_at: float
    elapsed_secs: float
    instance_id: str | None = None
    """The process that answers for it; None: one that has gone did."""


class FrontendState(Struct, frozen=True, kw_only=True):
    """One protocol that clients may speak."""

    id: str
    label: str
    short_description: str
    enabled: bool
    port: int | None
    tls: bool


class Live(ABC):
    """What the process can tell, and what can be done to it."""

    @abstractmethod
    def clusters(self) -> Sequence[ClusterState]:
        """Each cluster in each of its groups."""

    @abstractmethod
    def change_cluster(
        self, group: str, cluster: str, enabled: bool | None, limit: int | None
    ) -> ClusterState | None:
        """Turn a member on or off, or change its limit, in this process until its configuration changes;
        None leaves as it is. Gives the new state; None when the group has no such member."""

    async def clusters_with_workers(self) -> Sequence[ClusterState]:
        """The same, with what the workers that this process has started say of them."""
        return self.clusters()

    async def change_with_workers(
        self, group: str, cluster: str, enabled: bool | None, limit: int | None
    ) -> ClusterState | None:
        """``change_cluster``, also in the workers that this process has started. Raises Unavailable when one
        of them does not answer; the others have changed then."""
        return self.change_cluster(group, cluster, enabled, limit)

    @abstractmethod
    def running(self) -> Sequence[RunningQuery]:
        """Queries that run or wait, the oldest first."""

    async def running_elsewhere(self) -> Sequence[RunningQuery]:
        """Queries of workers that this process has started, and Trino statements of other processes of our
        database. Raises StoreUnavailable."""
        return ()

    @abstractmethod
    async def cancel(self, query_id: str) -> bool:
        """End a query, by our id or its engine's, also one that another process of our database answers for;
        returns when the engine has stopped. False when none is running under that id. Raises Unavailable when
        its process cannot be reached."""

    @abstractmethod
    async def probe(self, name: str, config: ClusterConfig) -> str:
        """Ask an engine with these settings a trivial question: why it could not be asked, or nothing."""

    @abstractmethod
    def frontends(self) -> Sequence[FrontendState]:
        """The doors, open or not."""

    @property
    @abstractmethod
    def external_address(self) -> str | None:
        """The public base URL, where one is configured."""

    @property
    @abstractmethod
    def admin_port(self) -> int:
        """The port this is asked on."""
