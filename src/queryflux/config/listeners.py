"""Where clients and operators connect."""

from msgspec import Struct

from queryflux.config.kinds import Count, Port
from queryflux.model.secret import Secret


class ListenerTls(Struct, frozen=True, rename="camel", kw_only=True):
    """The server's certificate chain and key, both PEM files."""

    cert_file: str
    """PEM file with the certificate, followed by its chain."""
    key_file: str
    """PEM file with the private key."""


class Address(Struct, frozen=True, rename="camel", kw_only=True):
    """What every listener has. Port 0 takes any free port."""

    host: str = "0.0.0.0"
    """Address to bind; `0.0.0.0` is every IPv4 address, `::` every address."""
    port: Port = 0
    """TCP port, to be written for every open door; 0 takes any free one."""
    tls: ListenerTls | None = None
    """Serve TLS with this certificate; absent: no TLS."""


class ListenerConfig(Address, frozen=True, rename="camel", kw_only=True):
    """One door. ``maxConnections`` 0 or absent: no limit."""

    enabled: bool = True
    """Whether the door is opened."""
    max_connections: Count | None = None
    """Connections at a time (HTTP: requests in flight); 0 or absent: no limit."""


class SnowflakeListenerConfig(ListenerConfig, frozen=True, rename="camel", kw_only=True):
    """The Snowflake door: wire v1 and the SQL API v2 on one port."""

    session_affinity_acknowledged: bool = False
    """Silences the warning that sessions need a load balancer with sticky sessions."""
    session_max_age_secs: Count = 86400
    """A session ends after this time; 0: no limit."""
    session_idle_timeout_secs: Count = 14400
    """An unused session ends after this time; 0: no limit."""


class FrontendsConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """The doors. Only Trino HTTP is open unless told otherwise."""

    trino_http: ListenerConfig = ListenerConfig(port=8080)
    """Trino's HTTP protocol; open on 8080 when the block is absent."""
    postgres_wire: ListenerConfig | None = None
    """PostgreSQL's wire protocol."""
    mysql_wire: ListenerConfig | None = None
    """MySQL's wire protocol."""
    flight_sql: ListenerConfig | None = None
    """Arrow Flight SQL (gRPC)."""
    clickhouse_http: ListenerConfig | None = None
    """ClickHouse's HTTP interface."""
    snowflake_http: SnowflakeListenerConfig | None = None
    """Snowflake's wire protocol v1 and its SQL API v2."""
    mcp: ListenerConfig | None = None
    """Model Context Protocol for agents."""

    def named(self) -> dict[str, ListenerConfig]:
        """The doors that the configuration has, enabled or not, by their key."""
        doors: dict[str, ListenerConfig | None] = {
            "trinoHttp": self.trino_http,
            "postgresWire": self.postgres_wire,
            "mysqlWire": self.mysql_wire,
            "flightSql": self.flight_sql,
            "clickhouseHttp": self.clickhouse_http,
            "snowflakeHttp": self.snowflake_http,
            "mcp": self.mcp,
        }
        return {name: door for name, door in doors.items() if door is not None}


class AdminApiConfig(Address, frozen=True, rename="camel", kw_only=True):
    """The operator port: /health, /readyz and /metrics without credentials, the admin API with them."""

    port: Port = 9000
    """TCP port; 0 takes any free one."""
    username: str = "admin"
    """Name of the operator. The environment's QUERYFLUX_ADMIN_USER wins."""
    password: Secret = Secret("admin")
    """The operator's password, plain or hashed with bcrypt. The environment's QUERYFLUX_ADMIN_PASSWORD wins,
    and one changed through the admin API over both. With `admin`, /admin answers this machine only."""
    cors_allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may call the admin API; empty: none."""


class OpsListenerConfig(Address, frozen=True, rename="camel", kw_only=True):
    """A worker's operator port."""

    port: Port = 9100
    """TCP port; 0 takes any free one."""
