"""The client half of SCRAM-SHA-256, written from RFC 5802 section 3, sharing nothing with the server half."""

import base64
import hashlib
import hmac


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


class ScramClient:
    def __init__(self, password: bytes, *, user: str = "", nonce: str = "abcdefgh", gs2: str = "n,,") -> None:
        self.password = password
        self.nonce = nonce
        self.gs2 = gs2
        self.bare = f"n={user},r={nonce}"
        self.expected = b""

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert fields["r"].startswith(self.nonce)
        assert len(fields["r"]) > len(self.nonce)
        salt = base64.b64decode(fields["s"])
        salted = block = mac(self.password, salt + b"\0\0\0\1")
        for _ in range(int(fields["i"]) - 1):
            block = mac(self.password, block)
            salted = bytes(a ^ b for a, b in zip(salted, block, strict=True))
        client_key = mac(salted, b"Client Key")
        bare_final = f"c={base64.b64encode(self.gs2.encode()).decode()},r={fields['r']}"
        message = f"{self.bare},{server_first.decode()},{bare_final}".encode()
        signature = mac(sha(client_key), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.expected = b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), message))
        return f"{bare_final},p={base64.b64encode(proof).decode()}".encode()
