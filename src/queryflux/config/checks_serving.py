"""``queryflux.workerApi`` and role ``controlPlane``: who serves workers can, and only to workers."""

import ipaddress

from queryflux.config.checks import Context
from queryflux.config.persistence import PostgresPersistence
from queryflux.config.problems import Path

SHORT_SECRET = 16
"""Characters; a secret of fewer can be guessed."""
_API: Path = ("queryflux", "workerApi")
_SECRETS = ("secret", "secretFile", "secrets")


def check_serving(context: Context) -> None:
    """A control plane has its database, who serves workers has a secret for them, and nobody reads along."""
    process = context.config.queryflux
    if process.role == "controlPlane":
        _control_plane(context)
    if process.serves_workers:
        _secrets(context)
        _in_clear(context)
    elif process.role == "standalone":
        _not_enabled(context)


def _control_plane(context: Context) -> None:
    process, reading = context.config.queryflux, context.reading
    path: Path = ("queryflux", "persistence", "type")
    if not isinstance(process.persistence, PostgresPersistence) and not reading.is_broken(path):
        message = "role controlPlane keeps its configuration and its workers' leases in PostgreSQL"
        hint = "set type: postgres, or role: standalone with workerApi.enabled: true"
        reading.problem(path, message, hint)
    if (*_API, "enabled") in reading.marks and not process.worker_api.enabled:
        reading.warn((*_API, "enabled"), "has no effect: a control plane always serves workers", "remove it")


def _not_enabled(context: Context) -> None:
    marks = context.reading.marks
    if (*_API, "enabled") not in marks and any((*_API, key) in marks for key in _SECRETS):
        message = "has no effect: a standalone serves workers only when it is told to"
        context.reading.warn(_API, message, "set enabled: true, or remove it")


def _secrets(context: Context) -> None:
    api, reading = context.config.queryflux.worker_api, context.reading
    written = {(*_API, "secret"): api.secret} if api.secret is not None else {}
    given = {**written, **{(*_API, "secrets", at): one for at, one in enumerate(api.secrets)}}
    broken = any(reading.is_broken((*_API, key)) for key in _SECRETS)
    if not given and not broken:
        message = "is required: workers present it, and whoever has it can read the whole configuration"
        reading.problem((*_API, "secret"), message, "or secretFile, a file to read it from")
    for path, secret in given.items():
        text = secret.reveal().strip()
        if not text:
            reading.problem(path, "must not be empty")
        elif not is_sent(text):
            reading.problem(path, "has characters that no HTTP header can carry", "use letters and digits")
        elif len(text) < SHORT_SECRET:
            message = f"has fewer than {SHORT_SECRET} characters: it can be guessed"
            reading.warn(path, message, "openssl rand -hex 32 makes one")
        if text and context.config.queryflux.admin_api.password.matches(text):
            message = "is the operator's password: whoever reads a worker's file can log in as the operator"
            reading.warn(path, message, "openssl rand -hex 32 makes one of its own")


def _in_clear(context: Context) -> None:
    admin = context.config.queryflux.admin_api
    if admin.tls is None and not is_loopback(admin.host):
        message = "workers fetch the configuration, with its credentials, over plain http here"
        hint = "set tls, or keep the port inside a network that you trust"
        context.reading.warn(("queryflux", "adminApi"), message, hint)


def is_sent(text: str) -> bool:
    """Whether a header can carry a secret."""
    return all("!" <= char <= "~" for char in text)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and nobody reads along."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
