"""``queryflux serve --data DIR``: a folder of files behind every door, without a configuration file."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from queryflux.config.checks_process import OPEN
from queryflux.config.checks_serving import is_loopback
from queryflux.config.clusters import ClusterConfig
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.listeners import AdminApiConfig, FrontendsConfig, ListenerConfig
from queryflux.config.process import LoggingConfig, ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.model.errors import ConfigError

log = logging.getLogger(__name__)

CLUSTER = "folder"
DEFAULT_PORTS = {
    "trinoHttp": 8080,
    "postgresWire": 5432,
    "mysqlWire": 3306,
    "flightSql": 50051,
    "adminApi": 9000,
}
OPTIONS = {
    "trinoHttp": "--trino-port",
    "postgresWire": "--postgres-port",
    "mysqlWire": "--mysql-port",
    "flightSql": "--flight-port",
    "adminApi": "--admin-port",
}
"""The option that chooses the port of each."""


def folder_config(
    directory: Path, host: str, ports: dict[str, int], log_level: Literal["info", "warning"] = "info"
) -> RootConfig:
    """The configuration that serves ``directory`` on ``host``. Raises ConfigError when it is no folder."""
    check_folder(directory)
    listeners = {name: ListenerConfig(host=host, port=port) for name, port in ports.items()}
    return RootConfig(
        queryflux=ProcessConfig(
            frontends=FrontendsConfig(
                trino_http=listeners["trinoHttp"],
                postgres_wire=listeners["postgresWire"],
                mysql_wire=listeners["mysqlWire"],
                flight_sql=listeners["flightSql"],
            ),
            admin_api=AdminApiConfig(host=host, port=ports["adminApi"]),
            logging=LoggingConfig(level=log_level),
        ),
        clusters={CLUSTER: ClusterConfig(engine="duckDb", data_path=str(directory.resolve()))},
        cluster_groups={CLUSTER: ClusterGroupConfig(members=(CLUSTER,))},
        routing_fallback=CLUSTER,
    )


def check_folder(directory: Path) -> None:
    """Raises ConfigError when nothing could be served from it."""
    hint = "name a folder of .parquet, .csv or .json files"
    try:
        os.scandir(directory).close()
    except (NotADirectoryError, FileNotFoundError):
        raise ConfigError(f"{directory} is not a folder", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {error.strerror or error}", hint=hint) from None


def check_host(host: str) -> None:
    """Raises ConfigError when this machine cannot listen there."""
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError) as error:  # ValueError: no name at all
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            f"cannot listen on {host}: {reason}",
            hint="--host is an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has",
        ) from None


def warn_if_open(host: str) -> None:
    """Say so when others reach what is served there: nobody is asked for a password."""
    if not is_loopback(host):
        log.warning("%s: whoever reaches %s can query", OPEN, host)


@contextmanager
def said_as_options() -> Iterator[None]:
    """Raises a ConfigError of what is inside with options in its hint: there is no file to set keys in."""
    try:
        yield
    except ConfigError as error:
        hint = error.hint
        for name, flag in OPTIONS.items():
            block = f"queryflux.{name}" if name == "adminApi" else f"queryflux.frontends.{name}"
            hint = hint.replace(f"set {block}.port", f"choose another one with {flag}")
            hint = hint.replace(f"set {block}.host", "choose it with --host")
        raise ConfigError(error.message, hint=hint) from error


def how_to_connect(host: str, ports: Mapping[str, int]) -> str:
    """The commands of five clients, and where operators look. ``ports`` are those that were opened."""
    http = f"http://{in_url(host)}"
    return "\n".join(
        [
            "",
            "Connect with",
            f"  psql    psql -h {host} -p {ports['postgresWire']} -U demo files",
            f"  Python  psycopg.connect('host={host} port={ports['postgresWire']} user=demo dbname=files')",
            f"  mysql   mysql -h {host} -P {ports['mysqlWire']} -u demo main",
            f"  Trino   trino --server {http}:{ports['trinoHttp']} --catalog files --schema main",
            f"  ADBC    adbc_driver_flightsql.dbapi.connect('grpc://{in_url(host)}:{ports['flightSql']}')",
            f"Health and metrics: {http}:{ports['adminApi']}/readyz and /metrics",
            "",
        ]
    )


def in_url(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def free_ports(
    host: str, wanted: Mapping[str, int | None], workers: int = 1
) -> tuple[dict[str, int], list[str]]:
    """A port for each listener: the one that was asked for, else the usual one, else, where that is taken, a
    free one; and a line for each that was replaced. Flight SQL's is the first of as many as there are
    ``workers``, which cannot share one. Raises ConfigError when this machine has no such address."""
    check_host(host)
    ports: dict[str, int] = {}
    notes: list[str] = []
    for name, usual in DEFAULT_PORTS.items():
        asked, count = wanted.get(name), workers if name == "flightSql" else 1
        ports[name] = usual if asked is None else asked
        if asked is None and not _are_free(host, usual, count):
            ports[name] = any_free(host, count)
            notes.append(f"port {usual} ({name}) is taken; using {ports[name]} instead")
    return ports, notes


def _are_free(host: str, first: int, count: int) -> bool:
    return all(port < 2**16 and _is_free(host, port) for port in range(first, first + count))


def _is_free(host: str, port: int) -> bool:
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def any_free(host: str, count: int = 1) -> int:
    """The first of so many free ports in a row."""
    while True:
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            first = int(probe.getsockname()[1])
        if _are_free(host, first, count):
            return first


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
