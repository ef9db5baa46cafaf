"""``queryflux.persistence``: where configuration, history and leases are kept."""

from msgspec import Struct

from queryflux.config.kinds import AtLeastOne, Count, Port
from queryflux.model.secret import Secret


class InMemoryPersistence(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="inMemory"
):
    """Kept by this process, gone when it ends."""


class SqlitePersistence(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="sqlite"):
    """A file of one process: configuration and history, no leases."""

    path: str
    """The file."""


class PostgresPersistence(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="postgres"
):
    """A PostgreSQL database, shared by the fleet."""

    url: Secret | None = None
    """Connection URL; when it is not blank the next five keys do not matter."""
    host: str | None = None
    """Host."""
    port: Port = 5432
    """Port."""
    user: str | None = None
    """User."""
    password: Secret | None = None
    """Password; absent: empty."""
    database: str | None = None
    """Database."""
    pool_size: AtLeastOne | None = None
    """All connections together, at least 4; absent: 6 for queries, 8 for leases, 2 for others, 1 listens."""
    query_pool_size: AtLeastOne | None = None
    """Connections for the state and the history of queries."""
    coordination_pool_size: AtLeastOne | None = None
    """Connections for leases; size it by queries per second times the time of one call (about 1 ms)."""
    admin_pool_size: AtLeastOne | None = None
    """Connections for the admin API and for what runs in the background."""
    acquire_timeout_secs: Count = 30
    """Longest wait for a connection."""
    statement_timeout_secs: Count = 60
    """Longest statement."""
    auto_migrate: bool = True
    """Bring the database's tables up to date at start; false: an operator does."""


class RedisPersistence(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="redis"):
    """Reserved."""

    url: Secret
    """Connection URL."""


Persistence = InMemoryPersistence | SqlitePersistence | PostgresPersistence | RedisPersistence
