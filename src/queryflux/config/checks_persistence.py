"""``queryflux.persistence`` and what stands or falls with it."""

import re
from urllib.parse import urlsplit

from queryflux.config.checks import Context
from queryflux.config.persistence import PostgresPersistence, SqlitePersistence
from queryflux.config.problems import Path, show

LEAST_POOL_SIZE = 4
RENEWALS_BEFORE_EXPIRY = 3
_UP_TO_PATH = re.compile(r"[^/?#]*")
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\[\]:@]*)(:[0-9]{1,5})?")
_PROCESS: Path = ("queryflux",)
_PERSISTENCE: Path = ("queryflux", "persistence")


def check_persistence(context: Context) -> None:
    """There is enough to connect with, pools can be split, and limits are shared through something."""
    persistence = context.config.queryflux.persistence
    if isinstance(persistence, PostgresPersistence):
        _postgres(context, persistence)
    elif isinstance(persistence, SqlitePersistence) and not persistence.path.strip():
        context.reading.problem((*_PERSISTENCE, "path"), "must not be empty", "name a file")
    _sharing(context)


def _postgres(context: Context, persistence: PostgresPersistence) -> None:
    reading = context.reading
    if persistence.url is None or not persistence.url.reveal().strip():
        written = reading.is_broken((*_PERSISTENCE, "url")) or reading.is_broken((*_PERSISTENCE, "urlFile"))
        parts = {"host": persistence.host, "user": persistence.user, "database": persistence.database}
        for key in (key for key, value in parts.items() if not (value or "").strip()):
            if not written and not reading.is_broken((*_PERSISTENCE, key)):
                reading.problem((*_PERSISTENCE, key), "is required", "or set url")
    elif message := _url_fault(persistence.url.reveal().strip()):
        reading.problem((*_PERSISTENCE, "url"), message, "postgres://user:password@host:port/database")
    sizes = (persistence.query_pool_size, persistence.coordination_pool_size, persistence.admin_pool_size)
    path = (*_PERSISTENCE, "poolSize")
    if persistence.pool_size is None:
        return
    if any(size is not None for size in sizes):
        reading.warn(path, "is ignored: pools have sizes of their own", "remove it")
    elif persistence.pool_size < LEAST_POOL_SIZE:
        hint = "one for each of the three pools, and one that listens"
        reading.problem(path, f"must be at least {LEAST_POOL_SIZE}", hint)


def _url_fault(url: str) -> str:
    """What is wrong with a connection URL, without a word of it: it may hold a password, and one whose
    special characters are not encoded would be taken for a host or a port, and shown as such."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgres", "postgresql"):
        return "is not a PostgreSQL URL"
    authority = _UP_TO_PATH.match(rest)
    assert authority is not None
    behind = rest[authority.end() :]
    path, _, query = behind.partition("?")
    if "#" in rest or "@" in path or any("=" not in field for field in query.split("&") if field):
        return "special characters of a name or a password must be percent-encoded, such as %2F for /"
    for host in authority[0].rpartition("@")[2].split(","):
        if not _HOST.fullmatch(host):
            return "expected a host and a port, or several with commas between them"
    return ""


def _sharing(context: Context) -> None:
    process = context.config.queryflux
    shared = isinstance(process.persistence, PostgresPersistence)
    worker = process.role == "worker"
    _address(context, shared=worker or (shared and process.distributed is not False))
    if process.distributed and not shared and not worker and not process.serves_workers:
        message = "limits are shared through a database, and there is none"
        context.reading.problem((*_PROCESS, "distributed"), message, "set persistence.type: postgres")
    if process.distributed is False and process.serves_workers:
        message = "who serves workers shares limits with them"
        hint = "remove it; coordination.mode: local gives a worker limits of its own"
        context.reading.problem((*_PROCESS, "distributed"), message, hint)
    settings = process.coordination
    if settings is None:
        return
    path = (*_PROCESS, "coordination")
    alone = not shared or process.distributed is False
    if alone and not worker and not process.serves_workers:
        context.reading.warn(path, "has no effect: limits are not shared with other processes", "remove it")
    if settings.lease_renew_secs * RENEWALS_BEFORE_EXPIRY > settings.lease_expiry_secs:
        message = "must be at most a third of leaseExpirySecs, so that two renewals may fail"
        context.reading.problem((*path, "leaseRenewSecs"), message)
    if settings.claim_refresh_secs * RENEWALS_BEFORE_EXPIRY > settings.claim_stale_secs:
        message = "must be at most a third of claimStaleSecs, so that two refreshes may fail"
        context.reading.problem((*path, "claimRefreshSecs"), message)


def _address(context: Context, *, shared: bool) -> None:
    """Where other processes are to reach this one is a place."""
    address = context.config.queryflux.advertise_address
    path = (*_PROCESS, "advertiseAddress")
    if address is None:
        return
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        good = url.scheme in {"http", "https"} and bool(url.hostname) and url.path in {"", "/"}
        good = good and (url.port is not None or "://" in address)
    except ValueError:
        good = False
    if not good:
        context.reading.problem(path, f"{show(address)} is no address", "such as 10.0.0.7:8080")
    elif not shared:
        context.reading.warn(path, "has no effect: no other process asks this one", "remove it")
