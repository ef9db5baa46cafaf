"""The Flight SQL door: gRPC with or without TLS in front of the service.

gRPC owns the socket and the threads. It cannot refuse new connections and go on with the open ones, so that a
drain is told to the service, which refuses new work.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from queryflux.auth.port import Authenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.flight_sql.bridge import Bridge
from queryflux.frontends.flight_sql.caller import Doorkeeper
from queryflux.frontends.flight_sql.server import FlightServer
from queryflux.frontends.flight_sql.service import FlightSqlService
from queryflux.model.errors import ConfigError
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.face import Pipeline
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.siblings import Siblings
from queryflux.runtime.threads import LaneThread

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 5.0
"""How long gRPC may take to part with clients that do not read."""


class FlightSqlDoor:
    """A listener for Flight SQL clients. ``maxConnections`` bounds the results being fetched at a time."""

    def __init__(
        self,
        config: ListenerConfig,
        pipeline: Pipeline,
        auth: Callable[[], Authenticator],
        metrics: Metrics,
        clock: Clock,
        process_tag: str,
        *,
        siblings: Siblings | None = None,
        announced_host: str | None = None,
    ) -> None:
        """``siblings`` redeem each other's tickets; ``announced_host`` is the host of this process in the
        endpoints that clients are given, None: they have no address in them."""
        label = ClientProtocol.FLIGHT_SQL.label
        self._config = config
        self._auth = auth
        self._failures = metrics.counter("queryflux_auth_failures_total", protocol=label)
        self._service = FlightSqlService(
            pipeline,
            clock,
            process_tag,
            most_results=config.max_connections or 0,
            refused=metrics.counter("queryflux_connections_refused_total", protocol=label),
            siblings=siblings,
        )
        self._announced_host = announced_host
        self._server: FlightServer | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._server.port) if self._server is not None else 0

    async def start(self) -> None:
        """Bind and serve. Raises ConfigError."""
        tls = self._config.tls
        certificates = [(_pem(tls.cert_file), _pem(tls.key_file))] if tls is not None else []
        bridge = Bridge(asyncio.get_running_loop())
        doorkeeper = Doorkeeper(self._auth, bridge, encrypted=tls is not None, failures=self._failures)
        host, port = self._config.host, self._config.port
        scheme = "grpc+tls" if tls is not None else "grpc"
        location = f"{scheme}://{_in_uri(host)}:{port}"
        announced = f"{scheme}://{_in_uri(self._announced_host)}" if self._announced_host else None
        try:
            self._server = FlightServer(location, certificates, self._service, bridge, doorkeeper, announced)
        except (pa.ArrowException, flight.FlightError, OSError) as error:
            raise ConfigError(
                f"the flightSql listener cannot bind {host}:{port}: {error}",
                hint="stop what holds the port, or set queryflux.frontends.flightSql.port; "
                "with tls check certFile and keyFile too",
            ) from error

    def stop_accepting(self) -> None:
        """Take no new statements; results, prepared statements and transactions that are open go on."""
        self._service.draining = True

    async def close(self, grace: float = 0) -> None:
        """Give open results ``grace`` seconds, then end them, and stop. May be called twice."""
        self.stop_accepting()
        server, self._server = self._server, None
        if server is None:
            return
        try:
            async with asyncio.timeout(grace):
                await self._service.wait_for_results()
        except TimeoutError:
            log.debug("flightSql: open results are cut")
        await self._service.close()
        lane = LaneThread("flightSql-shutdown")
        stopped = lane.submit(server.shutdown)
        lane.close()
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await asyncio.shield(stopped)
        except TimeoutError:
            log.warning("flightSql: a client does not read its result; leaving it behind")


def _in_uri(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _pem(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the TLS file {path} cannot be read: {error.strerror}") from None
