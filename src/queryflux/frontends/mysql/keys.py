"""The RSA key with which passwords travel over connections without TLS (caching_sha2_password).

A client asks for the public key, hides the password under our nonce, and encrypts it with RSAES-OAEP (SHA-1,
as MySQL has it). The key is made when the first client asks, on a thread, and lives as long as the door.
"""

import asyncio
from typing import TYPE_CHECKING

from queryflux.model.errors import AuthenticationFailed
from queryflux.runtime.threads import LaneThread
from queryflux.wire.mysql.handshake import unmask

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_BITS = 2048
_EXPONENT = 65537


class PasswordKey:
    """One key pair, made on first use."""

    def __init__(self) -> None:
        self._key: RSAPrivateKey | None = None
        self._making = asyncio.Lock()

    async def _ready(self) -> "RSAPrivateKey":
        from cryptography.hazmat.primitives.asymmetric import rsa

        async with self._making:
            if self._key is None:
                thread = LaneThread("mysql-password-key")
                try:
                    self._key = await thread.run(rsa.generate_private_key, _EXPONENT, _BITS)
                finally:
                    thread.close()
            return self._key

    async def public_pem(self) -> bytes:
        """The public key, as clients are sent it."""
        from cryptography.hazmat.primitives import serialization

        public = (await self._ready()).public_key()
        return public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    async def decrypt(self, data: bytes, nonce: bytes) -> bytes:
        """The password, with the NUL that ends it. Raises AuthenticationFailed."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        key = await self._ready()
        try:
            masked = key.decrypt(data, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))  # noqa: S303
        except ValueError:
            raise AuthenticationFailed(
                "the encrypted password cannot be read", hint="the client may hold the key of another server"
            ) from None
        return unmask(masked, nonce)
