"""``auth.provider: static``: users and passwords from the configuration.

A name that is not configured is treated as one that is: it is given the methods, the costs and the salt
(fixed for the life of the process) of some configured user, chosen by a keyed hash of the name, and fails
at the end like a wrong password.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping

from queryflux.auth.checks import PasswordChecks
from queryflux.auth.passwords import MAX_PASSWORD_BYTES, PlainPassword, StoredPassword
from queryflux.auth.port import NO_TLS, Authenticator, Methods, ScramExchange
from queryflux.auth.scram import SALT_BYTES, ScramServer
from queryflux.auth.sha2 import SCRAMBLE_BYTES, double_digest, scramble_matches
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import ANONYMOUS
from queryflux.model.errors import AuthenticationFailed, PlaintextCredentialsRefused
from queryflux.model.identity import VerifiedIdentity

MAX_DECOYS = 1024
_REFUSED = "user name or password is wrong"
_PLAINTEXT = "a password or token was sent over a connection without TLS"


class StaticAuthenticator(Authenticator):
    """Users of one configuration."""

    def __init__(
        self,
        users: Mapping[str, tuple[StoredPassword, VerifiedIdentity]],
        *,
        required: bool,
        allow_plaintext: bool,
        tokens: Tokens,
        checks: PasswordChecks,
    ) -> None:
        self.required = required
        self.allow_plaintext = allow_plaintext
        self._users = dict(users)
        self._models = [stored for stored, _ in self._users.values()] or [PlainPassword("none")]
        self._secret = secrets.token_bytes(32)
        self._decoys: OrderedDict[str, StoredPassword] = OrderedDict()
        self._digests: dict[str, bytes] = {}
        self._tokens = tokens
        self._checks = checks

    def methods(self, user: str) -> Methods:
        if not user:
            return Methods(none=not self.required)
        return self._find(user)[0].methods

    def trust(self, user: str) -> VerifiedIdentity:
        if user or self.required:
            raise AuthenticationFailed("a password is required", hint="connect with a user name and password")
        return VerifiedIdentity(ANONYMOUS, authenticated=False)

    async def verify_password(self, user: str, password: str, *, encrypted: bool) -> VerifiedIdentity:
        if not encrypted and not self.allow_plaintext:
            raise PlaintextCredentialsRefused(_PLAINTEXT, hint=NO_TLS)
        stored, identity = self._find(user)
        try:
            raw = password.encode()
        except UnicodeEncodeError:
            raise AuthenticationFailed(_REFUSED) from None
        if len(raw) > MAX_PASSWORD_BYTES:
            raise AuthenticationFailed(_REFUSED)
        if not stored.slow:
            right = stored.accepts(raw)
        else:
            right = self._checks.remembered(user, raw) or await self._checks.check(user, raw, stored.accepts)
        if not right or identity is None:
            raise AuthenticationFailed(_REFUSED)
        if user not in self._digests:
            self._digests[user] = double_digest(raw)
        return identity

    def scram(self, user: str) -> ScramExchange:
        stored, identity = self._find(user)
        if not stored.methods.scram:
            stored, identity = PlainPassword(secrets.token_urlsafe(16), self._salt(user)), None
        return ScramServer(stored.salt, stored.iterations, stored.keys, identity)

    def verify_caching_sha2(self, user: str, nonce: bytes, response: bytes) -> VerifiedIdentity | None:
        if len(response) != SCRAMBLE_BYTES:
            raise AuthenticationFailed(_REFUSED)
        stored, identity = self._find(user)
        certain = stored.digest()
        digest = certain or self._digests.get(user)
        if digest is None or not scramble_matches(response, nonce, digest):
            if certain is None:
                # The full path decides: a learnt digest is not the only password some hashes accept.
                return None
            raise AuthenticationFailed(_REFUSED)
        if identity is None:
            raise AuthenticationFailed(_REFUSED)
        return identity

    def issue_token(self, identity: VerifiedIdentity) -> str:
        return self._tokens.issue(identity)

    async def verify_bearer(self, token: str, *, encrypted: bool) -> VerifiedIdentity:
        if not encrypted and not self.allow_plaintext:
            raise PlaintextCredentialsRefused(_PLAINTEXT, hint=NO_TLS)
        identity = self._tokens.find(token)
        if identity is None:
            raise AuthenticationFailed("the bearer token is unknown or has expired", hint="log in again")
        return identity

    def _find(self, user: str) -> tuple[StoredPassword, VerifiedIdentity | None]:
        found = self._users.get(user)
        return found if found is not None else (self._decoy(user), None)

    def _decoy(self, user: str) -> StoredPassword:
        decoy = self._decoys.get(user)
        if decoy is None:
            mark = self._mark(b"model", user)
            model = self._models[int.from_bytes(mark[:8], "big") % len(self._models)]
            decoy = model.decoy(self._salt(user))
            while len(self._decoys) >= MAX_DECOYS:
                self._decoys.popitem(last=False)
            self._decoys[user] = decoy
        else:
            self._decoys.move_to_end(user)
        return decoy

    def _salt(self, user: str) -> bytes:
        return self._mark(b"salt", user)[:SALT_BYTES]

    def _mark(self, purpose: bytes, user: str) -> bytes:
        message = purpose + b":" + user.encode(errors="surrogatepass")
        return hmac.digest(self._secret, message, "sha256")
