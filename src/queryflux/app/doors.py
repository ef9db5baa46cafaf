"""The doors that exist, by their key under ``queryflux.frontends``. Each is imported when it is opened."""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from queryflux.auth.port import Authenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.listener import server_context
from queryflux.model.errors import ConfigError
from queryflux.pipeline.face import Pipeline
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics


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


@dataclass(frozen=True, slots=True)
class Behind:
    """What stands behind every door."""

    pipeline: Pipeline
    auth: Callable[[], Authenticator]
    metrics: Metrics
    clock: Clock
    process_tag: str
    external_address: str | None = None


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
        config, behind.pipeline, behind.auth, behind.metrics, behind.clock, behind.process_tag
    )


DOORS: dict[str, Callable[[ListenerConfig, Behind], Door]] = {
    "trinoHttp": trino_http,
    "postgresWire": postgres_wire,
    "mysqlWire": mysql_wire,
    "flightSql": flight_sql,
}


def _context(config: ListenerConfig, alpn: list[str] | None) -> ssl.SSLContext | None:
    return server_context(config.tls, alpn) if config.tls is not None else None
