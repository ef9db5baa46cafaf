"""What a door may ask about a client's credentials. Only this room makes a VerifiedIdentity."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from queryflux.model.identity import VerifiedIdentity

NO_TLS = "this door has no TLS: give its listener tls, or set auth.allowPlaintextCredentials: true"
"""What helps where a password must not travel in clear and a client can do nothing about it."""


class ScramExchange(ABC):
    """The server half of one SCRAM-SHA-256 exchange (RFC 5802, 7677), without I/O."""

    @abstractmethod
    def first(self, client_first: bytes) -> bytes:
        """Take the client-first message, give the server-first one. Raises AuthenticationFailed."""

    @abstractmethod
    def final(self, client_final: bytes) -> tuple[bytes, VerifiedIdentity]:
        """Take the client-final message; give the server-final one and who it is. Raises
        AuthenticationFailed. An unknown user fails here, after an exchange that looks like any other."""


@dataclass(frozen=True, slots=True)
class Methods:
    """How a user can prove who they are. ``none``: their word is taken (``auth.provider: none``)."""

    none: bool = False
    scram: bool = False
    caching_sha2: bool = False
    password: bool = False


class Authenticator(ABC):
    """Compiled from the ``auth`` section of one configuration."""

    required: bool
    """Whether a client that names nobody is refused."""
    allow_plaintext: bool
    """Whether a password may travel over a connection without TLS."""

    @abstractmethod
    def methods(self, user: str) -> Methods:
        """What can be asked of ``user``; for an unknown name the same as for a known one."""

    @abstractmethod
    def trust(self, user: str) -> VerifiedIdentity:
        """Take a claim at its word. Raises AuthenticationFailed unless ``methods(user).none``, or when the
        name is empty and ``required``; an empty name is ``anonymous`` otherwise."""

    @abstractmethod
    async def verify_password(self, user: str, password: str, *, encrypted: bool) -> VerifiedIdentity:
        """Check a password that travelled as such. Raises AuthenticationFailed; PlaintextCredentialsRefused
        when the connection was not ``encrypted`` and plain text is not allowed. bcrypt runs off the loop."""

    @abstractmethod
    def scram(self, user: str) -> ScramExchange:
        """Begin SCRAM for the user of the start-up packet."""

    @abstractmethod
    def verify_caching_sha2(self, user: str, nonce: bytes, response: bytes) -> VerifiedIdentity | None:
        """MySQL's fast path: the 32-byte scramble over our 20-byte nonce. None: ask for the full path.
        Raises AuthenticationFailed."""

    @abstractmethod
    def issue_token(self, identity: VerifiedIdentity) -> str:
        """A bearer token of ours for a client that has authenticated (Flight's Basic hand-shake)."""

    @abstractmethod
    async def verify_bearer(self, token: str, *, encrypted: bool) -> VerifiedIdentity:
        """Check a bearer token. Raises as ``verify_password``."""
