"""The doors that exist, by their key under ``queryflux.frontends``. Each is imported when it is opened."""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from queryflux.auth.port import Authenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.listener import server_context
from queryflux.model.errors import ConfigError
from queryflux.pipeline.claims import Claims
from queryflux.pipeline.face import Pipeline
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.siblings import Siblings
from queryflux.runtime.turns import Shared


class Door(Protocol):
    """A listener for clients of one protocol."""

    @property
    def port(self) -> int:
        """The port that was bound."""

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError."""

    def stop_accepting(self) -> None:
        """Take no further clients."""

    async def close(self, grace: float = 0) -> None:
        """Part with the clients that are left."""


@runtime_checkable
class SharingDoor(Protocol):
    """A door whose statements other processes may be asked about."""

    async def cancel_elsewhere(self, query_id: str) -> bool:
        """End a statement of another process, by our id or its engine's. False: nobody knows it."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What stands behind every door."""

    pipeline: Pipeline
    auth: Callable[[], Authenticator]
    metrics: Metrics
    clock: Clock
    process_tag: str
    external_address: str | None = None
    claims: Claims | None = None
    """On queries that other processes may be asked about."""
    siblings: Siblings | None = None
    """Processes that clients reach by the same ports."""
    shared: Mapping[str, Shared] = field(default_factory=dict)
    """Sockets that were bound already, by door, and that siblings accept on too."""


def trino_http(config: ListenerConfig, behind: Behind) -> Door:
    from queryflux.frontends.trino_http.door import TrinoDoor

    return TrinoDoor(
        config,
        behind.pipeline,
        behind.auth,
        behind.metrics,
        behind.clock,
        behind.process_tag,
        _context(config, ["http/1.1"]),
        behind.external_address,
        behind.claims,
        shared=behind.shared.get("trinoHttp"),
        siblings=behind.siblings,
    )


def postgres_wire(config: ListenerConfig, behind: Behind) -> Door:
    from queryflux.frontends.postgres.door import PostgresDoor

    return PostgresDoor(
        config,
        behind.pipeline,
        behind.auth,
        behind.metrics,
        behind.process_tag,
        _context(config, ["postgresql"]),
        shared=behind.shared.get("postgresWire"),
        siblings=behind.siblings,
    )


def mysql_wire(config: ListenerConfig, behind: Behind) -> Door:
    from queryflux.frontends.mysql.door import MysqlDoor

    return MysqlDoor(
        config,
        behind.pipeline,
        behind.auth,
        behind.metrics,
        behind.process_tag,
        _context(config, None),
        clock=behind.clock,
        shared=behind.shared.get("mysqlWire"),
        siblings=behind.siblings,
    )


def flight_sql(config: ListenerConfig, behind: Behind) -> Door:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would write lines of its own among ours
    try:
        from queryflux.frontends.flight_sql.door import FlightSqlDoor
    except ImportError as error:
        raise ConfigError(
            f"queryflux.frontends.flightSql needs the package {error.name!r}",
            hint="pip install 'queryflux[flight]'",
        ) from error
    return FlightSqlDoor(
        config,
        behind.pipeline,
        behind.auth,
        behind.metrics,
        behind.clock,
        behind.process_tag,
        siblings=behind.siblings,
        announced_host=_announced(config, behind) if behind.siblings is not None else None,
    )


def _announced(config: ListenerConfig, behind: Behind) -> str | None:
    """The host by which clients reach this very process, where that is known for sure: a certificate need not
    be for the address that the door listens on."""
    if behind.external_address is not None:
        return urlsplit(behind.external_address).hostname
    everywhere = config.host in ("", "0.0.0.0", "::")
    return None if everywhere or config.tls is not None else config.host


DOORS: dict[str, Callable[[ListenerConfig, Behind], Door]] = {
    "trinoHttp": trino_http,
    "postgresWire": postgres_wire,
    "mysqlWire": mysql_wire,
    "flightSql": flight_sql,
}


def _context(config: ListenerConfig, alpn: list[str] | None) -> ssl.SSLContext | None:
    return server_context(config.tls, alpn) if config.tls is not None else None
