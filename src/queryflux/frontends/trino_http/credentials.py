"""Who sends a request. Every request says so anew; nothing else of it is looked at before."""

import binascii
import hmac
import logging
from base64 import b64decode
from collections.abc import Callable

from queryflux.auth.port import Authenticator
from queryflux.auth.trust import ANONYMOUS
from queryflux.model.errors import AccessDenied, AuthenticationFailed
from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.clock import Clock
from queryflux.wire.trino import headers as names

log = logging.getLogger(__name__)

REMEMBER_SECONDS = 60.0
"""How long a connection need not have the same header checked again."""


class Remembered:
    """What a connection last proved with its Authorization header, so that each poll of it is not a password
    check; or, not ``proven``, the user name that was taken at its word."""

    __slots__ = ("authenticator", "header", "identity", "proven", "until")

    def __init__(
        self,
        authenticator: Authenticator,
        header: str,
        identity: VerifiedIdentity,
        until: float,
        *,
        proven: bool,
    ) -> None:
        self.authenticator = authenticator
        self.header = header
        self.identity = identity
        self.until = until
        self.proven = proven


class Credentials:
    """Checks the Authorization header, or takes X-Trino-User at its word where that is configured."""

    def __init__(self, auth: Callable[[], Authenticator], clock: Clock) -> None:
        self._auth = auth
        self._clock = clock
        self._warned = False

    def hold(self, known: Remembered) -> bool:
        """Whether a request with the same headers needs no other look."""
        if known.authenticator is not self._auth():
            return False
        return not known.proven or self._clock.monotonic() < known.until

    def trusted(
        self, headers: dict[str, str], known: Remembered | None
    ) -> tuple[VerifiedIdentity | None, Remembered | None]:
        """The identity where nothing has to be checked; None where ``check`` must be awaited. Raises
        AuthenticationFailed."""
        if "authorization" in headers:
            return None, known
        authenticator = self._auth()
        user = headers.get(names.USER, "")
        if known is None or known.authenticator is not authenticator or known.header != user or known.proven:
            known = Remembered(authenticator, user, authenticator.trust(user), 0.0, proven=False)
        return known.identity, known

    async def check(
        self, headers: dict[str, str], known: Remembered | None, *, encrypted: bool
    ) -> tuple[VerifiedIdentity, Remembered | None]:
        """The identity that the Authorization header proves. Raises AuthenticationFailed; AccessDenied when
        X-Trino-User names somebody else."""
        authenticator = self._auth()
        header = headers["authorization"]
        now = self._clock.monotonic()
        if (
            known is not None
            and known.proven
            and known.authenticator is authenticator
            and now < known.until
            and hmac.compare_digest(known.header.encode(), header.encode())
        ):
            identity = known.identity
        else:
            identity = await self._verify(
                authenticator, header, headers.get(names.USER, ""), encrypted or _behind_tls(headers)
            )
            known = Remembered(authenticator, header, identity, now + REMEMBER_SECONDS, proven=True)
        claimed = headers.get(names.USER, "")
        if claimed and claimed != identity.user:
            raise AccessDenied(f"User {identity.user} cannot impersonate user {claimed}")
        return identity, known

    async def _verify(
        self, authenticator: Authenticator, header: str, claimed: str, encrypted: bool
    ) -> VerifiedIdentity:
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "basic":
            user, password = _basic(value.strip())
            if authenticator.methods(user).none:
                return authenticator.trust(user)
            self._warn(encrypted)
            return await authenticator.verify_password(user, password, encrypted=True)
        if scheme.lower() == "bearer":
            # Asked about a name: of nobody in particular a provider with tokens may want nothing either.
            if authenticator.methods(claimed or ANONYMOUS).none:
                return authenticator.trust(claimed)
            self._warn(encrypted)
            return await authenticator.verify_bearer(value.strip(), encrypted=True)
        raise AuthenticationFailed("the Authorization header must be of scheme Basic or Bearer")

    def _warn(self, encrypted: bool) -> None:
        """This door takes credentials without TLS, since a TLS terminator in front of it is usual."""
        if not encrypted and not self._warned:
            self._warned = True
            log.warning(
                "Trino HTTP clients send credentials without TLS: set tls on the listener, or let a proxy "
                "terminate TLS and set X-Forwarded-Proto"
            )


def _behind_tls(headers: dict[str, str]) -> bool:
    return headers.get("x-forwarded-proto", "").lower() == "https"


def _basic(value: str) -> tuple[str, str]:
    """User and password (RFC 7617)."""
    try:
        user, colon, password = b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("the Basic credentials cannot be read") from None
    if not colon:
        raise AuthenticationFailed("the Basic credentials cannot be read")
    return user, password
