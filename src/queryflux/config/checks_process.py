"""Listeners and users: what clients meet first."""

from queryflux.config.auth import AuthConfig
from queryflux.config.checks import Context
from queryflux.config.listeners import Address
from queryflux.config.problems import Path

WILDCARDS = ("0.0.0.0", "::", "")
_PASSWORD_DOORS = ("postgresWire", "mysqlWire")


def check_listeners(context: Context) -> None:
    """Ports are given and distinct; TLS files can be read."""
    process = context.config.queryflux
    base: Path = ("queryflux", "frontends")
    listeners: dict[Path, Address] = {}
    for name, door in process.frontends.named().items():
        path = (*base, name)
        context.readable((*path, "tls", "certFile"), door.tls.cert_file if door.tls else None)
        context.readable((*path, "tls", "keyFile"), door.tls.key_file if door.tls else None)
        if not door.enabled:
            continue
        listeners[path] = door
        if path in context.reading.marks and (*path, "port") not in context.reading.marks:
            context.reading.problem((*path, "port"), "is required", "0 takes any free port")
    admin: Path = ("queryflux", "adminApi")
    listeners[admin] = process.admin_api
    if process.admin_api.tls is not None:
        context.readable((*admin, "tls", "certFile"), process.admin_api.tls.cert_file)
        context.readable((*admin, "tls", "keyFile"), process.admin_api.tls.key_file)
    _ports(context, listeners)
    if len(listeners) == 1:
        context.reading.warn(base, "no door is open: nobody can send a query", "enable one")


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


_CANNOT = {
    "bcrypt": ("a bcrypt hash", _PASSWORD_DOORS),
    "scram": ("a SCRAM verifier", ("mysqlWire",)),
    "cachingSha2": ("a caching_sha2 hash", ("postgresWire",)),
}
"""Doors at which a form of password can be checked only when the client sends it in clear."""


def _passwords(context: Context, auth: AuthConfig) -> None:
    clear = _doors_in_clear(context, auth)
    for name, user in auth.static_users.users.items():
        path: Path = ("auth", "staticUsers", "users", name, "password")
        stored = user.password.reveal()
        if reason := context.password(stored) if stored else "a password must not be empty":
            context.reading.problem(path, reason, "queryflux hash-password makes one")
            continue
        what, doors = _CANNOT.get(stored_as(stored), ("", ()))
        blocked = [door for door in doors if door in clear]
        if blocked:
            _say_blocked(context, path, what, blocked)


def _say_blocked(context: Context, path: Path, what: str, doors: list[str]) -> None:
    have = "has" if len(doors) == 1 else "have"
    message = f"{what} can be checked at {' and '.join(doors)} only against a password sent in clear, "
    message += f"and {' and '.join(doors)} {have} no TLS"
    hint = "set tls there, use another form of password, or set auth.allowPlaintextCredentials: true"
    # With bcrypt no door of these would ever let the user in; the other forms have one that does.
    if what == _CANNOT["bcrypt"][0]:
        context.reading.problem(path, message, hint)
    else:
        context.reading.warn(path, message, hint)


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
