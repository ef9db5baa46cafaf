"""A cluster as libpq's connection URI (libpq manual, "Connection URIs")."""

import socket
from ipaddress import ip_address
from urllib.parse import quote, urlencode

from queryflux.engines.postgres.target import APPLICATION_NAME, Target
from queryflux.model.errors import EngineUnavailable

CONNECT_TIMEOUT = 10
"""Seconds."""


def uri_of(target: Target) -> str:
    """The URI. It holds the password: never to be shown. May block to resolve a name.

    Raises EngineUnavailable.
    """
    options = {
        "application_name": APPLICATION_NAME,
        "client_encoding": "UTF8",
        "connect_timeout": str(CONNECT_TIMEOUT),
        "sslmode": "disable",
        "gssencmode": "disable",
    }
    host = target.host
    if target.tls is None:
        options["require_auth"] = "scram-sha-256,md5,none"
    else:
        options["sslmode"] = "require" if target.tls.insecure_skip_verify else "verify-full"
        if not target.tls.insecure_skip_verify:
            options["sslrootcert"] = target.tls.ca_file or "system"
        if target.tls.server_name and target.tls.server_name != host:
            options["hostaddr"] = _address(host)
            host = target.tls.server_name
    password = f":{quote(target.password.reveal(), safe='')}" if target.password else ""
    host = f"[{host}]" if ":" in host else host
    return (
        f"postgresql://{quote(target.user, safe='')}{password}@{host}:{target.port}"
        f"/{quote(target.database, safe='')}?{urlencode(options, quote_via=quote)}"
    )


def _address(host: str) -> str:
    """The numeric address of a host."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None)[0][4][0])
    except OSError as error:
        raise EngineUnavailable(f"The host {host} cannot be resolved: {error}") from error
