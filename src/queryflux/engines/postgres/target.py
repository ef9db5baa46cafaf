"""Where a cluster's server is and how we present ourselves to it."""

import ssl
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from queryflux.config.clusters import ClusterConfig, EngineTls
from queryflux.model.errors import ConfigError
from queryflux.model.secret import Secret

DEFAULT_PORT = 5432
DEFAULT_POOL = 20
APPLICATION_NAME = "queryflux"


@dataclass(frozen=True, slots=True)
class Target:
    """One server. ``keys`` and ``contexts`` keep SCRAM's salted passwords and the TLS context."""

    cluster: str
    host: str
    port: int
    database: str
    user: str
    password: Secret | None
    tls: EngineTls | None
    pool_size: int
    keys: MutableMapping[tuple[bytes, int], bytes] = field(default_factory=dict, repr=False)
    contexts: list[ssl.SSLContext] = field(default_factory=list, repr=False)

    @property
    def where(self) -> str:
        """``host:port`` for messages."""
        return f"{self.host}:{self.port}"

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must bear."""
        return (self.tls.server_name if self.tls else None) or self.host

    def context(self) -> ssl.SSLContext | None:
        """TLS towards the server; None without. Raises OSError (also ssl.SSLError) for a bad CA file."""
        if self.tls is None:
            return None
        if self.contexts:
            return self.contexts[0]
        context = ssl.create_default_context(cafile=self.tls.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.tls.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self.contexts.append(context)
        return context


def target_of(name: str, config: ClusterConfig) -> Target:
    """Read a cluster's configuration. Raises ConfigError."""
    endpoint = config.endpoint or ""
    if not endpoint:
        raise ConfigError(
            f"clusters.{name}: PostgreSQL needs an endpoint", hint="Write endpoint: host:5432 or a URL."
        )
    url = urlsplit(endpoint if "://" in endpoint else f"postgres://{endpoint}")
    if url.scheme not in ("postgres", "postgresql"):
        raise ConfigError(f"clusters.{name}.endpoint: a PostgreSQL URL begins with postgres://")
    if url.username or url.password:
        raise ConfigError(
            f"clusters.{name}.endpoint: credentials do not belong in the endpoint",
            hint="Give them under auth, as username and password.",
        )
    user = config.auth.username if config.auth else None
    password = config.auth.password if config.auth else None
    database = config.database or unquote(url.path.removeprefix("/")) or user or "postgres"
    return Target(
        cluster=name,
        host=url.hostname or "localhost",
        port=_port(name, url),
        database=database,
        user=user or "postgres",
        password=password or None,
        tls=_tls(name, config, url),
        pool_size=config.pool_size or DEFAULT_POOL,
    )


def _port(name: str, url: SplitResult) -> int:
    try:
        return url.port or DEFAULT_PORT
    except ValueError:
        raise ConfigError(f"clusters.{name}.endpoint: the port is not a number from 1 to 65535") from None


def _tls(name: str, config: ClusterConfig, url: SplitResult) -> EngineTls | None:
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    mode = options.pop("sslmode", "")
    if options:
        raise ConfigError(
            f"clusters.{name}.endpoint: the option {min(options)} is not supported in the URL",
            hint="Only sslmode is; TLS is better set under tls.",
        )
    match mode:
        case "":
            return config.tls
        case "disable":
            return None
        case "require":
            return config.tls or EngineTls(insecure_skip_verify=True)
        case "verify-ca" | "verify-full":
            return config.tls or EngineTls()
        case _:
            raise ConfigError(
                f"clusters.{name}.endpoint: sslmode={mode} is not supported",
                hint="Use disable, require or verify-full.",
            )
