"""The process's own settings: listeners and users, what clients meet first, and history."""

from queryflux.config.auth import AuthConfig
from queryflux.config.checks import Context
from queryflux.config.checks_serving import is_loopback
from queryflux.config.listeners import Address, AdminApiConfig, OpsListenerConfig
from queryflux.config.persistence import InMemoryPersistence
from queryflux.config.problems import Path

WILDCARDS = ("0.0.0.0", "::", "")
OPEN = "no authentication, and reachable from the network"
PROVIDER: Path = ("auth", "provider")
_POSTGRES = "postgresWire"


def check_listeners(context: Context) -> None:
    """Ports are given and distinct; TLS files can be read."""
    process = context.config.queryflux
    base: Path = ("queryflux", "frontends")
    listeners: dict[Path, Address] = {}
    for name, door in process.frontends.named().items():
        path = (*base, name)
        _tls(context, path, door)
        if not door.enabled:
            continue
        listeners[path] = door
        if path in context.reading.marks and (*path, "port") not in context.reading.marks:
            context.reading.problem((*path, "port"), "is required", "0 takes any free port")
    operators = _operators(context)
    listeners[operators[0]] = operators[1]
    _tls(context, *operators)
    _ports(context, listeners)
    if len(listeners) == 1 and not process.serves_workers:
        context.reading.warn(base, "no door is open: nobody can send a query", "enable one")


def check_open(context: Context) -> None:
    """Whoever reaches a door queries with the credentials of the clusters, and nobody asked who it is."""
    _open(context)


def check_open_in_file(context: Context) -> None:
    """As check_open; a database may have the last word."""
    stored = not isinstance(context.config.queryflux.persistence, InMemoryPersistence)
    _open(context, ", unless auth is stored in the database" if stored else "")


def _open(context: Context, unless: str = "") -> None:
    config, reading = context.config, context.reading
    if config.queryflux.role == "worker" or config.auth.provider != "none" or reading.is_broken(PROVIDER):
        return
    doors = config.queryflux.frontends.named()
    far = [name for name, door in doors.items() if door.enabled and not is_loopback(door.host)]
    if far:
        listeners = ", ".join(f"queryflux.frontends.{name}" for name in far)
        message = f"{OPEN}: {listeners}{unless}"
        reading.warn(PROVIDER, message, "set auth.provider: static, or host: 127.0.0.1 in each of them")


def _operators(context: Context) -> tuple[Path, Address]:
    """The operator port: a worker's is its ops listener."""
    process = context.config.queryflux
    if process.role == "worker":
        return ("queryflux", "opsListener"), process.ops_listener or OpsListenerConfig()
    path: Path = ("queryflux", "adminApi")
    _admin_password(context, path, process.admin_api)
    return path, process.admin_api


def check_retention(context: Context) -> None:
    """Something is stored where retention is asked for."""
    process = context.config.queryflux
    if process.query_history_retention_days and isinstance(process.persistence, InMemoryPersistence):
        context.reading.warn(
            ("queryflux", "queryHistoryRetentionDays"),
            "has no effect: history is in memory only",
            "set queryflux.persistence, or remove it",
        )


def _admin_password(context: Context, path: Path, config: AdminApiConfig) -> None:
    """The operator's password is one. Where it stands is unknown: the environment may have given it."""
    stored = config.password.reveal()
    if reason := context.password(stored) if stored else "a password must not be empty":
        context.reading.problem(
            (*path, "password"), reason, "or leave it out and set QUERYFLUX_ADMIN_PASSWORD"
        )


def _tls(context: Context, path: Path, listener: Address) -> None:
    """Certificate and key can be read, and belong together."""
    if listener.tls is None:
        return
    cert, key = listener.tls.cert_file, listener.tls.key_file
    readable = [
        context.readable((*path, "tls", name), file) for name, file in (("certFile", cert), ("keyFile", key))
    ]
    if all(readable) and (fault := context.key_pair(cert, key)):
        name, reason = fault
        context.reading.problem((*path, "tls", name), reason)


def _ports(context: Context, listeners: dict[Path, Address]) -> None:
    taken: list[tuple[Path, Address]] = []
    for path, listener in listeners.items():
        for other_path, other in taken:
            if listener.port and listener.port == other.port and _same_host(listener.host, other.host):
                names = f"{other_path[-1]} listens there too"
                context.reading.problem((*path, "port"), f"port {listener.port} is taken: {names}")
                break
        taken.append((path, listener))


def _same_host(one: str, other: str) -> bool:
    return one == other or one in WILDCARDS or other in WILDCARDS


def check_auth(context: Context) -> None:
    """Somebody can log in, and no password has to travel in clear unless that is allowed."""
    auth = context.config.auth
    if auth.required:
        _required(context, auth)
    if auth.provider == "static":
        _passwords(context, auth)
        _clear_doors(context, auth)
    elif auth.static_users.users:
        message = f"auth.provider is {auth.provider}: these users are not used"
        context.reading.warn(("auth", "staticUsers"), message, "set auth.provider: static")


def _required(context: Context, auth: AuthConfig) -> None:
    """``required: true`` with nobody who could satisfy it."""
    reading = context.reading
    path: Path = ("auth", "required")
    if auth.provider == "none" and not reading.is_broken(("auth", "provider")):
        reading.problem(path, "nobody can authenticate with auth.provider: none", "set auth.provider: static")
    elif auth.provider == "static" and not _any_user(context):
        reading.problem(path, "there are no users under auth.staticUsers.users", "add one")
    elif auth.provider == "oidc":
        oidc = auth.oidc
        blank = [
            key
            for key, value in (
                ("issuer", oidc and oidc.issuer),
                ("jwksUri", oidc and oidc.jwks_uri),
                ("audience", oidc and oidc.audience),
            )
            if not (value or "").strip()
        ]
        for key in blank:
            reading.problem(("auth", "oidc", key), "must not be blank while auth.required is true")
    elif auth.provider == "ldap":
        _required_ldap(context, auth)


def _required_ldap(context: Context, auth: AuthConfig) -> None:
    reading, ldap = context.reading, auth.ldap
    path: Path = ("auth", "ldap")
    if ldap is None:
        reading.problem(path, "is required with auth.provider: ldap")
        return
    if not ldap.url.strip():
        reading.problem((*path, "url"), "must not be blank while auth.required is true")
    if ldap.user_dn_template:
        if "{}" not in ldap.user_dn_template:
            reading.problem((*path, "userDnTemplate"), "needs {} for the name of the user")
    elif not ldap.user_search_base.strip():
        reading.problem((*path, "userSearchBase"), "needs a search base, or set userDnTemplate")
    elif not ldap.user_search_filter.strip():
        reading.problem((*path, "userSearchFilter"), "must not be blank")


def _any_user(context: Context) -> bool:
    return any(
        path[:3] == ("auth", "staticUsers", "users") and len(path) == 4 for path in context.reading.marks
    )


def stored_as(password: str) -> str:
    """``bcrypt``, ``scram``, ``cachingSha2`` or ``plain``, by how a stored password begins."""
    if password.startswith(("$2$", "$2a$", "$2b$", "$2x$", "$2y$")):
        return "bcrypt"
    if password.startswith("SCRAM-SHA-256$"):
        return "scram"
    if password.startswith("$A$") or password[:8].lower() == "0x244124":
        return "cachingSha2"
    return "plain"


_NO_SCRAM = {"bcrypt": "a bcrypt hash", "cachingSha2": "a caching_sha2 hash"}
"""Forms that PostgreSQL clients can prove only by sending the password in clear. MySQL clients without TLS
send it encrypted with the door's own key."""


def _passwords(context: Context, auth: AuthConfig) -> None:
    clear = _doors_in_clear(context, auth)
    for name, user in auth.static_users.users.items():
        path: Path = ("auth", "staticUsers", "users", name, "password")
        stored = user.password.reveal()
        if reason := context.password(stored) if stored else "a password must not be empty":
            context.reading.problem(path, reason, "queryflux hash-password makes one")
            continue
        form = stored_as(stored)
        what = _NO_SCRAM.get(form)
        if what is not None and _POSTGRES in clear:
            message = f"{what} can be checked at {_POSTGRES} only against a password sent in clear, "
            message += f"and {_POSTGRES} has no TLS"
            hint = "set tls there, use a SCRAM verifier, or set auth.allowPlaintextCredentials: true"
            elsewhere = form != "bcrypt" and _some_door_takes(context, clear)
            say = context.reading.warn if elsewhere else context.reading.problem
            say(path, message, hint)


def _some_door_takes(context: Context, clear: list[str]) -> bool:
    """Whether a door is open at which a password of any form can be proved."""
    doors = context.config.queryflux.frontends.named()
    return any(
        door.enabled and (name not in clear or name in ("mysqlWire", "trinoHttp"))
        for name, door in doors.items()
    )


def _doors_in_clear(context: Context, auth: AuthConfig) -> list[str]:
    """Enabled doors without TLS at which a password in clear is refused."""
    if auth.allow_plaintext_credentials:
        return []
    doors = context.config.queryflux.frontends.named()
    return [name for name, door in doors.items() if door.enabled and door.tls is None]


def _clear_doors(context: Context, auth: AuthConfig) -> None:
    clear = _doors_in_clear(context, auth)
    base: Path = ("queryflux", "frontends")
    if "flightSql" in clear:
        message = "Flight SQL clients send their password as it is, and are refused without TLS"
        hint = "set tls, or auth.allowPlaintextCredentials: true"
        context.reading.warn((*base, "flightSql"), message, hint)
    if "trinoHttp" in clear:
        message = "Trino clients send their password as it is, and this door has no TLS"
        context.reading.warn((*base, "trinoHttp"), message, "set tls, or put a TLS terminator in front")
