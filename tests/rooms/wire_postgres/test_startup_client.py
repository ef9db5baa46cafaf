"""The client's start-up: the table, and exchanges with servers honest and not."""

import base64
import hashlib
import hmac
import itertools
import struct

import pytest

from queryflux.model.errors import (
    AuthenticationFailed,
    PlaintextCredentialsRefused,
    ProtocolViolation,
    QueryFluxError,
)
from queryflux.model.secret import Secret
from queryflux.wire.postgres.constants import Back
from queryflux.wire.postgres.scram_client import ScramClient, prepared
from queryflux.wire.postgres.startup_client import STARTUP, Startup, StartupEvent, StartupState

S, E = StartupState, StartupEvent


def code(number: int, rest: bytes = b"") -> bytes:
    return struct.pack("!I", number) + rest


SAMPLES: dict[StartupEvent, tuple[int, bytes]] = {
    E.OK: (Back.AUTHENTICATION, code(0)),
    E.PASSWORD: (Back.AUTHENTICATION, code(5, b"salt")),
    E.SASL: (Back.AUTHENTICATION, code(10, b"SCRAM-SHA-256\0\0")),
    E.SASL_CONTINUE: (Back.AUTHENTICATION, code(11, b"r=x,s=c2FsdA==,i=4096")),
    E.SASL_FINAL: (Back.AUTHENTICATION, code(12, b"v=eHg=")),
    E.PARAMETER: (Back.PARAMETER_STATUS, b"server_version\x0017\0"),
    E.KEY: (Back.BACKEND_KEY_DATA, code(1, b"key!")),
    E.NOTICE: (Back.NOTICE, b"Mhello\0\0"),
    E.NEGOTIATE: (Back.NEGOTIATE_PROTOCOL_VERSION, code(0, code(0))),
    E.READY: (Back.READY_FOR_QUERY, b"I"),
    E.ERROR: (Back.ERROR, b"VFATAL\0C28P01\0Mno\0\0"),
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)))
def test_every_pair_of_the_table(state: StartupState, event: StartupEvent) -> None:
    startup = Startup("me", Secret("pw"), encrypted=True, state=state)
    startup._scram = ScramClient(Secret("pw"), "nonce")
    if (state, event) not in STARTUP:
        with pytest.raises(ProtocolViolation):
            startup.receive(*SAMPLES[event])
        assert startup.state is state
        return
    if event in (E.SASL_CONTINUE, E.SASL_FINAL):
        with pytest.raises(AuthenticationFailed):
            startup.receive(*SAMPLES[event])
        return
    startup.receive(*SAMPLES[event])
    assert startup.state is STARTUP[state, event]


def test_md5() -> None:
    startup = Startup("me", Secret("pw"), encrypted=False)
    inner = hashlib.md5(b"pwme").hexdigest().encode()
    expected = b"md5" + hashlib.md5(inner + b"salt").hexdigest().encode()
    assert startup.receive(Back.AUTHENTICATION, code(5, b"salt")) == b"p\0\0\0\x28" + expected + b"\0"


def test_a_password_in_clear_needs_tls() -> None:
    assert Startup("me", Secret("pw"), True).receive(Back.AUTHENTICATION, code(3)) == b"p\0\0\0\x07pw\0"
    with pytest.raises(PlaintextCredentialsRefused):
        Startup("me", Secret("pw"), False).receive(Back.AUTHENTICATION, code(3))


def test_without_a_password() -> None:
    for body in (code(3), code(5, b"salt"), code(10, b"SCRAM-SHA-256\0\0")):
        with pytest.raises(AuthenticationFailed):
            Startup("me", None, True).receive(Back.AUTHENTICATION, body)


def test_unknown_ways_to_authenticate() -> None:
    for body in (code(7), code(9), code(2), b""):
        with pytest.raises(ProtocolViolation):
            Startup("me", Secret("pw"), True).receive(Back.AUTHENTICATION, body)
    with pytest.raises(AuthenticationFailed):
        Startup("me", Secret("pw"), True).receive(Back.AUTHENTICATION, code(10, b"OAUTHBEARER\0\0"))


def test_keys_and_parameters() -> None:
    startup = Startup("me", None, False)
    startup.receive(Back.AUTHENTICATION, code(0))
    startup.receive(*SAMPLES[E.PARAMETER])
    startup.receive(*SAMPLES[E.KEY])
    assert startup.parameters == {"server_version": "17"}
    assert (startup.pid, startup.key) == (1, b"key!")
    with pytest.raises(ProtocolViolation):
        startup.receive(Back.BACKEND_KEY_DATA, b"short")


# SCRAM against a server written here from RFC 5802.


class Server:
    """The server's half, honest unless told otherwise."""

    def __init__(self, password: bytes, iterations: int = 4096) -> None:
        self.salt = b"0123456789abcdef"
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac("sha256", password, self.salt, iterations)
        self.messages: list[bytes] = []

    def first(self, client_first: bytes) -> bytes:
        assert client_first.startswith(b"n,,n=,r=")
        nonce = client_first.rpartition(b"r=")[2]
        answer = b"r=%sserver,s=%s,i=%d" % (nonce, base64.b64encode(self.salt), self.iterations)
        self.messages = [client_first[3:], answer]
        return answer

    def final(self, client_final: bytes) -> bytes:
        without, _, proof = client_final.rpartition(b",p=")
        assert without.startswith(b"c=biws,r=")
        message = b",".join([*self.messages, without])
        client_key = hmac.digest(self.salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(self.salted, b"Server Key", "sha256")
        return b"v=" + base64.b64encode(hmac.digest(server_key, message, "sha256"))


def test_scram_both_ways() -> None:
    server, client = Server(b"pencil"), ScramClient(Secret("pencil"), "abc")
    client.verify(server.final(client.final(server.first(client.first()))))


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(Secret("pencil"), "rOprNGfwEbeRWgbNEkqO")
    client._bare = b"n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.final(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_salted_password_is_kept() -> None:
    keys: dict[tuple[bytes, int], bytes] = {}
    server = Server(b"pencil")
    for _ in range(2):
        client = ScramClient(Secret("pencil"), "abc", keys)
        client.verify(server.final(client.final(server.first(client.first()))))
    assert list(keys) == [(server.salt, 4096)]


def test_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient(Secret("pencil"), "abc")
    client.final(Server(b"pencil").first(client.first()))
    for final in (b"v=" + base64.b64encode(b"x" * 32), b"e=other-error", b""):
        with pytest.raises(AuthenticationFailed):
            client.verify(final)
    with pytest.raises(AuthenticationFailed):
        ScramClient(Secret("pencil"), "abc").verify(b"v=")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=abc,s=c2FsdA==,i=4096",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=abcx,s=c2FsdA==,i=0",
        b"r=abcx,s=c2FsdA==,i=999999999",
        b"r=abcx,s=c2FsdA==,i=99999999999999999999",
        b"r=abcx,s=c2FsdA==,i=\xc2\xb2",
        b"r=abcx,s=*,i=4096",
        b"r=abcx,s=,i=4096",
        b"m=ext,r=abcx,s=c2FsdA==,i=4096",
        b"r=abcx,s=c2FsdA==,i=4096" + b"," * 5000,
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(QueryFluxError):
        ScramClient(Secret("pencil"), "abc").final(first)


@pytest.mark.parametrize(
    ("password", "bytes_"),
    [
        ("plain", b"plain"),
        ("I\u00adX", b"IX"),
        ("\u00aa", b"a"),
        ("\u2168", b"IX"),
        ("a\u00a0b", b"a b"),
        ("a\u0007é", "a\u0007é".encode()),
        ("\u0627\u0031é", "\u0627\u0031é".encode()),
    ],
)
def test_saslprep(password: str, bytes_: bytes) -> None:
    assert prepared(password) == bytes_
