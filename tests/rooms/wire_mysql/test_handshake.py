"""The greeting and what clients answer to it."""

import pytest

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.mysql import handshake
from queryflux.wire.mysql.constants import OFFERED, Capability
from queryflux.wire.mysql.handshake import Login, SslRequest, read_change_user, read_response
from queryflux.wire.mysql.lenenc import lenenc_bytes

MODERN = (
    Capability.PROTOCOL_41
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.PLUGIN_AUTH_LENENC_DATA
    | Capability.CONNECT_WITH_DB
    | Capability.CONNECT_ATTRS
)
ATTRIBUTES = b"".join(map(lenenc_bytes, (b"program_name", b"mysql", b"_os", b"Linux")))


def response(capabilities: int, tail: bytes) -> bytes:
    return capabilities.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23) + tail


def test_the_greeting_names_the_connection_and_never_holds_a_nul_in_its_nonce() -> None:
    nonce = handshake.new_nonce()
    assert len(nonce) == 20
    assert 0 not in nonce
    payload = handshake.greeting(0xA1B2C3D4, nonce, tls=True)
    version, _, rest = payload[1:].partition(b"\0")
    assert payload[0] == 10
    assert version.startswith(b"8.0.")
    assert rest[:4] == b"\xd4\xc3\xb2\xa1"
    assert rest[4:12] == nonce[:8]
    low, high = int.from_bytes(rest[13:15], "little"), int.from_bytes(rest[18:20], "little")
    assert low | high << 16 == OFFERED | Capability.SSL
    assert rest[20] == 21
    assert rest[31:44] == nonce[8:] + b"\0"
    assert rest[44:] == b"caching_sha2_password\0"
    plain = handshake.greeting(1, nonce, tls=False).partition(b"\0")[2]
    assert not int.from_bytes(plain[13:15], "little") & Capability.SSL


def test_a_modern_client() -> None:
    tail = b"bob\0" + lenenc_bytes(b"proof") + b"sales\0caching_sha2_password\0" + lenenc_bytes(ATTRIBUTES)
    login = read_response(response(MODERN, tail), tls=False)
    assert login == Login(
        MODERN,
        45,
        "bob",
        b"proof",
        "sales",
        "caching_sha2_password",
        {"program_name": "mysql", "_os": "Linux"},
    )
    assert "proof" not in repr(login)


def test_an_older_client_with_a_one_byte_length() -> None:
    capabilities = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION
    login = read_response(response(capabilities, b"bob\0\x02ab"), tls=False)
    assert login == Login(capabilities, 45, "bob", b"ab")


def test_capabilities_that_were_not_offered_do_not_count() -> None:
    login = read_response(response(MODERN | Capability.COMPRESS | 1 << 30, b"b\0\0\0\0\0"), tls=False)
    assert login.capabilities == MODERN


def test_a_request_for_tls() -> None:
    payload = response(MODERN | Capability.SSL, b"")
    assert read_response(payload, tls=True) == SslRequest(MODERN | Capability.SSL)
    with pytest.raises(ProtocolViolation):
        read_response(payload, tls=False)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0" * 40,
        response(MODERN, b""),
        response(MODERN, b"no end"),
        response(MODERN, b"bob\0\xff"),
        response(MODERN, b"bob\0\x20short"),
        response(MODERN, b"\xff\xfe\0\0\0"),
        response(MODERN, b"bob\0\0\0\0" + lenenc_bytes(b"\x05ab")),
    ],
)
def test_broken_responses(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_response(payload, tls=True)


def test_every_cut_of_a_response_is_refused_or_read() -> None:
    tail = b"bob\0" + lenenc_bytes(b"proof") + b"sales\0caching_sha2_password\0" + lenenc_bytes(ATTRIBUTES)
    payload = response(MODERN, tail)
    for end in range(len(payload)):
        try:
            login = read_response(payload[:end], tls=False)
        except ProtocolViolation:
            continue
        assert isinstance(login, Login)
        assert login.user == "bob"


def test_a_change_of_user() -> None:
    payload = b"\x11eve\0\x02pw" + b"db\0" + b"\x2d\0" + b"caching_sha2_password\0" + lenenc_bytes(ATTRIBUTES)
    login = read_change_user(payload, MODERN)
    assert (login.user, login.proof, login.database, login.plugin) == (
        "eve",
        b"pw",
        "db",
        "caching_sha2_password",
    )
    with pytest.raises(ProtocolViolation):
        read_change_user(b"\x11eve", MODERN)


def test_unmasking_is_the_inverse_of_masking() -> None:
    nonce = handshake.new_nonce()
    secret = b"a long enough secret, longer than the nonce\0"
    assert handshake.unmask(handshake.unmask(secret, nonce), nonce) == secret
