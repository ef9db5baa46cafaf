"""What an authorization header gets one."""

import base64

import pytest

from queryflux.auth.build import build_authenticator
from queryflux.auth.port import Authenticator
from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.frontends.flight_sql.caller import anonymous, extra_of, identify
from queryflux.model.errors import AuthenticationFailed, PlaintextCredentialsRefused
from queryflux.model.secret import Secret


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def static(*, required: bool = True, plaintext: bool = False) -> Authenticator:
    return build_authenticator(
        AuthConfig(
            provider="static",
            required=required,
            allow_plaintext_credentials=plaintext,
            static_users=StaticUsers(users={"anne": StaticUser(password=Secret("pä:ss"))}),
        )
    )


async def test_a_hand_shake_gives_a_token_that_stands_for_the_user() -> None:
    auth = static()
    who, token = await identify(auth, basic("anne", "pä:ss"), encrypted=True, handshake=True)
    assert who.user == "anne"
    assert token is not None
    again, none = await identify(auth, f"bearer {token}", encrypted=True, handshake=False)
    assert again == who
    assert none is None


async def test_basic_credentials_without_padding() -> None:
    padded = basic("anne", "pä:ss")
    assert padded.endswith("=")
    who, _ = await identify(static(), padded.rstrip("="), encrypted=True, handshake=True)
    assert who.user == "anne"


async def test_basic_on_an_ordinary_call_makes_no_token() -> None:
    who, token = await identify(static(), basic("anne", "pä:ss"), encrypted=True, handshake=False)
    assert who.user == "anne"
    assert token is None


@pytest.mark.parametrize(
    "credentials",
    [
        basic("anne", "wrong"),
        basic("bob", "pä:ss"),
        basic("", ""),
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Bearer",
        "Bearer made-up",
        "Negotiate abc",
        "anne:pä:ss",
    ],
)
async def test_credentials_that_are_refused(credentials: str) -> None:
    for handshake in (True, False):
        with pytest.raises(AuthenticationFailed):
            await identify(static(), credentials, encrypted=True, handshake=handshake)


async def test_credentials_in_clear_are_refused_unless_allowed() -> None:
    auth = static()
    with pytest.raises(PlaintextCredentialsRefused):
        await identify(auth, basic("anne", "pä:ss"), encrypted=False, handshake=True)
    with pytest.raises(PlaintextCredentialsRefused):
        await identify(auth, "Bearer made-up", encrypted=False, handshake=False)
    auth = static(plaintext=True)
    who, token = await identify(auth, basic("anne", "pä:ss"), encrypted=False, handshake=True)
    assert (await identify(auth, f"Bearer {token}", encrypted=False, handshake=False))[0] == who


def test_without_credentials() -> None:
    who = anonymous(build_authenticator(AuthConfig()))
    assert (who.user, who.authenticated) == ("anonymous", False)
    assert anonymous(static(required=False)).user == "anonymous"
    for auth in (static(), build_authenticator(AuthConfig(required=True))):
        with pytest.raises(AuthenticationFailed):
            anonymous(auth)


async def test_a_claim_without_a_provider() -> None:
    auth = build_authenticator(AuthConfig())
    claimed, _ = await identify(auth, basic("anne", "anything"), encrypted=False, handshake=True)
    assert (claimed.user, claimed.authenticated) == ("anne", False)


def test_headers_that_can_hold_a_secret_are_not_for_rules_and_scripts() -> None:
    headers: dict[str, list[object]] = {
        "x-team": ["etl", "night"],
        "authorization": ["Basic x"],
        "proxy-authorization": ["Basic y"],
        "cookie": ["session=z"],
        "trace-bin": [b"\x00"],
    }
    assert extra_of(headers) == {"x-team": "etl,night"}
