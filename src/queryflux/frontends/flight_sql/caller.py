"""Who calls: authentication before anything of a call is looked at, in a server middleware.

``authorization: Basic`` is checked as a password and, in Flight's hand-shake, answered with a bearer token of
ours; ``Bearer`` is checked as such a token. Without the header a client is anonymous where that is allowed.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.flight as flight

from queryflux.auth.port import Authenticator
from queryflux.frontends.flight_sql.bridge import Bridge
from queryflux.frontends.flight_sql.errors import to_status
from queryflux.model.errors import AuthenticationFailed, QueryFluxError
from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.metrics import Count

MIDDLEWARE = "caller"
MAX_CREDENTIALS = 16 * 1024
_KEPT_BACK = {"authorization", "proxy-authorization", "cookie", "auth-token-bin"}


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, and from where."""

    identity: VerifiedIdentity
    headers: Mapping[str, str]
    peer: str


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """A client that was let in, for the time of one call."""

    def __init__(self, identity: VerifiedIdentity, headers: Mapping[str, str], token: str | None) -> None:
        self.identity = identity
        self.headers = headers
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        """The bearer token that answers a hand-shake."""
        return {"authorization": f"Bearer {self._token}"} if self._token is not None else {}


class Doorkeeper(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Makes a Caller of each call, or refuses it. Runs in gRPC's threads."""

    def __init__(
        self, auth: Callable[[], Authenticator], bridge: Bridge, *, encrypted: bool, failures: Count
    ) -> None:
        self._auth = auth
        self._bridge = bridge
        self._encrypted = encrypted
        self._failures = failures

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> Caller:
        """pyarrow's hook before each call. Raises FlightUnauthenticatedError; FlightUnavailableError before
        there is a configuration to authenticate with."""
        handshake = info.method == flight.FlightMethod.HANDSHAKE
        token = None
        try:
            auth = self._auth()
            credentials = _credentials(headers.get("authorization", []))
            if credentials:
                work = identify(auth, credentials, encrypted=self._encrypted, handshake=handshake)
                identity, token = self._bridge.call(work, lambda: False)
            else:
                identity = anonymous(auth)
        except QueryFluxError as error:
            if isinstance(error, AuthenticationFailed):
                self._failures.inc()
            raise to_status(error) from None
        return Caller(identity, extra_of(headers), token)


def _credentials(values: list[Any]) -> str:
    if not values:
        return ""
    if len(values) > 1 or not isinstance(values[0], str) or len(values[0]) > MAX_CREDENTIALS:
        raise AuthenticationFailed("the authorization header cannot be read")
    return values[0]


def extra_of(headers: Mapping[str, list[Any]]) -> dict[str, str]:
    """What routing and history may know: text headers, but none that can hold a secret."""
    return {
        name: ",".join(values)
        for name, values in headers.items()
        if name not in _KEPT_BACK and not name.endswith("-bin") and all(isinstance(v, str) for v in values)
    }


def anonymous(auth: Authenticator) -> VerifiedIdentity:
    """A client without an authorization header. Raises AuthenticationFailed."""
    if not auth.methods("").none:
        raise AuthenticationFailed("credentials are required", hint="log in with a user name and password")
    return auth.trust("")


async def identify(
    auth: Authenticator, credentials: str, *, encrypted: bool, handshake: bool
) -> tuple[VerifiedIdentity, str | None]:
    """Who an authorization header stands for and, after a hand-shake by password, a new token. Raises
    AuthenticationFailed."""
    scheme, _, value = credentials.partition(" ")
    kind = scheme.lower()
    if kind == "bearer":
        return await auth.verify_bearer(value.strip(), encrypted=encrypted), None
    if kind != "basic":
        raise AuthenticationFailed("only Basic and Bearer credentials are understood")
    user, password = _user_and_password(value.strip())
    identity = await auth.verify_password(user, password, encrypted=encrypted)
    return identity, auth.issue_token(identity) if handshake else None


def _user_and_password(value: str) -> tuple[str, str]:
    # Arrow's Go client leaves the padding out.
    padded = value + "=" * (-len(value) % 4)
    try:
        user, colon, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise AuthenticationFailed("the Basic credentials cannot be read")
    return user, password


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets Flight's Handshake call through to the middleware, which does the work."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing more: the answer is in the headers."""

    def is_valid(self, token: bytes) -> bytes:
        """The older token header is not looked at."""
        return b""
