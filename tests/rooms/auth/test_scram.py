"""SCRAM-SHA-256 against RFC 7677's example and an independent client."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.auth.scram import ScramKeys, ScramServer, prepared, saslprep, scram_verifier
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.identity import VerifiedIdentity
from tests.rooms.auth.scram_client import ScramClient

ANNE = VerifiedIdentity("anne")
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def server(password: str, identity: VerifiedIdentity | None = ANNE, iterations: int = 64) -> ScramServer:
    keys = ScramKeys.derive(password, b"salt-of-sixteen!", iterations)
    return ScramServer(keys.salt, keys.iterations, lambda: keys, identity)


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    keys = ScramKeys.derive("pencil", RFC_SALT, 4096)
    exchange = ScramServer(keys.salt, keys.iterations, lambda: keys, ANNE)
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last, who = exchange.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert who is ANNE


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.sampled_from(["n,,", "y,,"]))
def test_any_password_and_an_independent_client(password: str, gs2: str) -> None:
    client = ScramClient(prepared(password), gs2=gs2)
    exchange = server(password)
    last, who = exchange.final(client.final(exchange.first(client.first())))
    assert last == client.expected
    assert who is ANNE


def test_a_wrong_password_and_an_unknown_user_fail_alike() -> None:
    said = []
    for exchange in (server("right"), server("wrong", identity=None)):
        client = ScramClient(b"wrong")
        with pytest.raises(AuthenticationFailed) as failure:
            exchange.final(client.final(exchange.first(client.first())))
        said.append(failure.value.message)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"p=tls-server-end-point,,n=,r=abc",
        b"n,a=other,n=,r=abc",
        b"n,,m=x,n=,r=abc",
        b"n,,n=user",
        b"n,,n=,r=",
        b"n,,n=,r=a\x00b",
        b"x,,n=,r=abc",
        b"n,,n=,r=" + b"a" * 600,
        b"n,,n=" + b"u" * 5000 + b",r=abc",
    ],
)
def test_a_first_message_that_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server("pw").first(first)


@pytest.mark.parametrize(
    ("change", "to"),
    [(b"c=biws", b"c=eSws"), (b",r=abc", b",r=abd"), (b",p=", b",q="), (b"=", b"!"), (b",p=", b",p=AAAA")],
)
def test_a_final_message_that_is_refused(change: bytes, to: bytes) -> None:
    exchange = server("pw")
    client = ScramClient(b"pw")
    final = client.final(exchange.first(client.first())).replace(change, to)
    with pytest.raises(AuthenticationFailed):
        exchange.final(final)


def test_messages_out_of_place() -> None:
    client = ScramClient(b"pw")
    with pytest.raises(AuthenticationFailed):
        server("pw").final(b"c=biws,r=abc,p=AAAA")
    exchange = server("pw")
    exchange.first(client.first())
    with pytest.raises(AuthenticationFailed):
        exchange.first(client.first())
    exchange = server("pw")
    final = client.final(exchange.first(client.first()))
    exchange.final(final)
    with pytest.raises(AuthenticationFailed):
        exchange.final(final)


def test_a_verifier_that_postgresql_made() -> None:
    # ALTER USER ... PASSWORD 'pencil' with the salt of RFC 7677: keys as in its example.
    text = ScramKeys.derive("pencil", RFC_SALT, 4096).text()
    assert text == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    assert ScramKeys.parse(text).text() == text


def test_verifiers_round_trip_and_are_salted() -> None:
    one, two = scram_verifier("s3cret"), scram_verifier("s3cret")
    assert one != two
    assert ScramKeys.parse(one).accepts("s3cret")
    assert not ScramKeys.parse(two).accepts("s3cres")
    assert "s3cret" not in repr(ScramKeys.parse(one))


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256$",
        "SCRAM-SHA-256$4096:salt",
        "SCRAM-SHA-256$0:c2FsdA==$a:b",
        "SCRAM-SHA-256$x:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$99999999:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$4096:c2FsdA==$AAAA:AAAA",
        "SCRAM-SHA-256$4096:ü$AAAA:AAAA",
    ],
)
def test_a_verifier_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="SCRAM verifier"):
        ScramKeys.parse(text)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
    ],
)
def test_the_examples_of_rfc_4013(text: str, becomes: str) -> None:
    assert saslprep(text) == becomes


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\u0627a\u0627"])
def test_what_saslprep_prohibits_is_hashed_as_it_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"prohibits|directions"):
        saslprep(text)
    assert prepared(text) == text.encode()
