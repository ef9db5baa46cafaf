"""Where clients and operators connect."""

from msgspec import Struct


class ListenerTls(Struct, frozen=True, rename="camel", kw_only=True):
    """The server's certificate chain and key, both PEM files."""

    cert_file: str
    key_file: str


class ListenerConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """One listener. ``maxConnections`` 0 or absent: no limit."""

    enabled: bool = True
    host: str = "0.0.0.0"
    port: int = 0
    max_connections: int | None = None
    tls: ListenerTls | None = None
