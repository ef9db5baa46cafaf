"""How a client proves who it is, whatever plugin it comes with.

caching_sha2_password is asked of everybody: the fast path where the stored password allows it, else the full
path, in which the password travels under TLS or encrypted with our key. A client that begins with
mysql_clear_password is taken at that where the configuration allows it; one that begins with any other plugin
is switched.

Where nothing is proved, the client still waits for the messages of the plugin it has in mind. There
mysql_native_password is kept for a client that begins with it, as old ones know nothing else.
"""

from typing import Protocol

from queryflux.auth.port import Authenticator
from queryflux.frontends.mysql.keys import PasswordKey
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.identity import VerifiedIdentity
from queryflux.wire.mysql.constants import Capability
from queryflux.wire.mysql.handshake import (
    CACHING_SHA2,
    CLEAR_PASSWORD,
    NATIVE_PASSWORD,
    Login,
    Sha2Step,
    auth_more,
    auth_switch,
    new_nonce,
)

_NO_PASSWORD = (b"", b"\0")


class Link(Protocol):
    """The connection, as far as a login needs it."""

    @property
    def encrypted(self) -> bool:
        """Whether TLS is on."""

    async def ask(self, payload: bytes) -> bytes:
        """Send a message and return what the client answers. Raises ConnectionError."""

    def tell(self, payload: bytes) -> None:
        """Send a message with the next that goes out."""


async def prove(
    link: Link, login: Login, nonce: bytes, auth: Authenticator, key: PasswordKey
) -> VerifiedIdentity:
    """Who the client is. ``nonce`` is the one that ``login.proof`` was made with; an empty one makes the
    client begin anew. Raises AuthenticationFailed."""
    user = login.user
    methods = auth.methods(user)
    if methods.none:
        claimed = auth.trust(user)
        await _answer_plugin(link, login, nonce)
        return claimed
    if not (methods.caching_sha2 or methods.password):
        raise AuthenticationFailed(f"'{user}' cannot log in over the MySQL protocol")
    proof = login.proof
    if login.plugin == CLEAR_PASSWORD and proof:
        _check_given(proof)
        return await auth.verify_password(user, _password(proof), encrypted=link.encrypted)
    if not login.capabilities & Capability.PLUGIN_AUTH:
        raise AuthenticationFailed(f"the client is too old for {CACHING_SHA2}", hint="use a newer one")
    if login.plugin != CACHING_SHA2 or not nonce:
        nonce = new_nonce()
        proof = await link.ask(auth_switch(CACHING_SHA2, nonce))
    _check_given(proof)
    if methods.caching_sha2:
        identity = auth.verify_caching_sha2(user, nonce, proof)
        if identity is not None:
            link.tell(auth_more(bytes((Sha2Step.FAST_SUCCESS,))))
            return identity
    return await _full(link, user, nonce, auth, key)


async def _answer_plugin(link: Link, login: Login, nonce: bytes) -> None:
    """Say what the client's plugin waits for, whatever it proves. One that begins with a plugin which is not
    the greeting's, or changes its user, has often sent nothing yet and waits to be switched; one that names
    no plugin waits for OK alone."""
    if login.plugin in ("", CLEAR_PASSWORD):
        return
    proof = login.proof
    plugin = NATIVE_PASSWORD if login.plugin == NATIVE_PASSWORD else CACHING_SHA2
    if login.plugin != CACHING_SHA2 or not nonce:
        proof = await link.ask(auth_switch(plugin, new_nonce()))
    if plugin == CACHING_SHA2 and proof not in _NO_PASSWORD:
        link.tell(auth_more(bytes((Sha2Step.FAST_SUCCESS,))))


async def _full(
    link: Link, user: str, nonce: bytes, auth: Authenticator, key: PasswordKey
) -> VerifiedIdentity:
    """The full path: the password itself, under TLS or encrypted with our key."""
    answer = await link.ask(auth_more(bytes((Sha2Step.FULL_AUTHENTICATION,))))
    encrypted = link.encrypted
    if not encrypted and answer == bytes((Sha2Step.REQUEST_PUBLIC_KEY,)):
        answer = await link.ask(auth_more(await key.public_pem()))
        answer = await key.decrypt(answer, nonce)
        encrypted = True
    return await auth.verify_password(user, _password(answer), encrypted=encrypted)


def _check_given(proof: bytes) -> None:
    if proof in _NO_PASSWORD:
        raise AuthenticationFailed("the client sent no password")


def _password(data: bytes) -> str:
    try:
        return data.removesuffix(b"\0").decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the password is not UTF-8") from None
