"""Where a coordinator is, and how we show who we are."""

import base64
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from queryflux.config.clusters import ClusterConfig, EngineAuth, EngineTls
from queryflux.model.errors import ConfigError
from queryflux.model.identity import VerifiedIdentity

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """``authority`` is what goes into Host; ``base`` the path before ``/v1``, without a slash at its end.

    Follow-ups go to the same address with the path that the coordinator gave: credentials never go to a host
    that a response names, and a coordinator behind a balancer may name one that we cannot reach.
    """

    host: str
    port: int
    authority: str
    base: str
    tls: ssl.SSLContext | None
    server_name: str | None
    authorization: str | None = field(repr=False)
    service_user: str | None
    """The user of the cluster's own login; None without one."""
    names_user: bool
    """Whether X-Trino-User is sent: with a token the coordinator knows the user from the token."""
    post_line: bytes
    """The first line of a request that begins a statement."""

    def user(self, identity: VerifiedIdentity) -> str | None:
        """Who the query runs as: the cluster's own login, else the client's name; None where the token
        says."""
        if not self.names_user:
            return None
        return self.service_user or identity.user


def target(name: str, config: ClusterConfig) -> Target:
    """The target that a cluster's configuration describes. Raises ConfigError."""
    url = urlsplit(config.endpoint or "")
    if url.scheme not in DEFAULT_PORTS or not url.hostname:
        raise ConfigError(f"clusters.{name}.endpoint: {config.endpoint!r} is not an http or https URL")
    context = tls_context(name, config.tls) if url.scheme == "https" else None
    base = url.path.rstrip("/")
    authorization, user, names_user = _credentials(name, config.auth)
    return Target(
        host=url.hostname,
        port=url.port or DEFAULT_PORTS[url.scheme],
        authority=url.netloc.rpartition("@")[2],
        base=base,
        tls=context,
        server_name=config.tls.server_name if config.tls else None,
        authorization=authorization,
        service_user=user,
        names_user=names_user,
        post_line=f"POST {base}/v1/statement HTTP/1.1\r\n".encode("ascii", "replace"),
    )


def tls_context(name: str, config: EngineTls | None) -> ssl.SSLContext:
    """TLS as configured. Raises ConfigError when ``caFile`` cannot be read."""
    try:
        context = ssl.create_default_context(cafile=config.ca_file if config else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"clusters.{name}.tls.caFile: {error}") from error
    if config is not None and config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _credentials(name: str, auth: EngineAuth | None) -> tuple[str | None, str | None, bool]:
    """Authorization, the service user, and whether the user is named."""
    if auth is None:
        return None, None, True
    if auth.type == "basic" and auth.username:
        secret = auth.password.reveal() if auth.password is not None else ""
        token = base64.b64encode(f"{auth.username}:{secret}".encode()).decode()
        return f"Basic {token}", auth.username, True
    if auth.type == "bearer" and auth.token is not None:
        return f"Bearer {auth.token.reveal()}", None, False
    raise ConfigError(f"clusters.{name}.auth: Trino takes basic (with username) and bearer (with token)")
