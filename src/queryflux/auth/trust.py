"""``auth.provider: none``: a client's claim is taken at its word."""

from queryflux.auth.port import Authenticator, Methods, ScramExchange
from queryflux.auth.tokens import Tokens
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.identity import VerifiedIdentity

ANONYMOUS = "anonymous"
_METHODS = Methods(none=True)


class TrustAuthenticator(Authenticator):
    """Nothing is proved, so that a password or token which a client sends anyway is not looked at."""

    def __init__(self, *, required: bool, allow_plaintext: bool, tokens: Tokens) -> None:
        self.required = required
        self.allow_plaintext = allow_plaintext
        self._tokens = tokens

    def methods(self, user: str) -> Methods:
        return _METHODS

    def trust(self, user: str) -> VerifiedIdentity:
        if user:
            return VerifiedIdentity(user, authenticated=False)
        if self.required:
            raise AuthenticationFailed("a user name is required", hint="connect with a user name")
        return VerifiedIdentity(ANONYMOUS, authenticated=False)

    async def verify_password(self, user: str, password: str, *, encrypted: bool) -> VerifiedIdentity:
        return self.trust(user)

    def scram(self, user: str) -> ScramExchange:
        raise AuthenticationFailed("SCRAM is not offered: no passwords are configured")

    def verify_caching_sha2(self, user: str, nonce: bytes, response: bytes) -> VerifiedIdentity | None:
        return self.trust(user)

    def issue_token(self, identity: VerifiedIdentity) -> str:
        return self._tokens.issue(identity)

    async def verify_bearer(self, token: str, *, encrypted: bool) -> VerifiedIdentity:
        identity = self._tokens.find(token)
        if identity is None:
            raise AuthenticationFailed("the bearer token is unknown or has expired", hint="log in again")
        return identity
