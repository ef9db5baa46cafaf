"""Providers none and static: who gets in, and how alike the refusals are."""

import asyncio
import threading
from collections.abc import Mapping
from unittest.mock import patch

import pytest

from queryflux.auth import checks as checks_module
from queryflux.auth.build import build_authenticator
from queryflux.auth.groups import may_use_group
from queryflux.auth.passwords import bcrypt_hash
from queryflux.auth.port import Authenticator, Methods
from queryflux.auth.scram import scram_verifier
from queryflux.auth.sha2 import caching_sha2_hash
from queryflux.auth.tokens import Tokens
from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.model.errors import (
    AuthenticationFailed,
    ConfigError,
    PlaintextCredentialsRefused,
    Unavailable,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.secret import Secret
from queryflux.runtime.clock import SystemClock
from queryflux.runtime.threads import LaneThread
from tests.rooms.auth.scram_client import ScramClient
from tests.rooms.auth.test_sha2 import client_scramble

NONCE = bytes(range(1, 21))
PASSWORD = "pa$$wörd"


class JumpClock(SystemClock):
    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


STORED = {
    "plain": PASSWORD,
    "bcrypt": bcrypt_hash(PASSWORD, 4),
    "scram": scram_verifier(PASSWORD, 64),
    "sha2": caching_sha2_hash(PASSWORD),
}


def config(
    stored: Mapping[str, str] = STORED, *, required: bool = True, plaintext: bool = False
) -> AuthConfig:
    users = {
        name: StaticUser(password=Secret(text), groups=("bi",), roles=("dba",))
        for name, text in stored.items()
    }
    return AuthConfig(
        provider="static",
        required=required,
        allow_plaintext_credentials=plaintext,
        static_users=StaticUsers(users=users),
    )


def static(
    clock: JumpClock | None = None, *, required: bool = True, plaintext: bool = False
) -> Authenticator:
    return build_authenticator(config(required=required, plaintext=plaintext), clock or JumpClock())


# Provider none.


async def test_a_claim_is_taken_at_its_word() -> None:
    auth = build_authenticator(AuthConfig())
    assert auth.methods("anne") == Methods(none=True)
    assert auth.trust("anne") == VerifiedIdentity("anne", authenticated=False)
    assert auth.trust("").user == "anonymous"
    assert (await auth.verify_password("anne", "anything", encrypted=False)).user == "anne"
    token = auth.issue_token(auth.trust("anne"))
    assert (await auth.verify_bearer(token, encrypted=False)).user == "anne"
    with pytest.raises(AuthenticationFailed):
        await auth.verify_bearer("another", encrypted=True)


def test_required_without_a_provider_demands_a_name() -> None:
    auth = build_authenticator(AuthConfig(required=True))
    assert auth.trust("anne").user == "anne"
    with pytest.raises(AuthenticationFailed):
        auth.trust("")


# Provider static.


@pytest.mark.parametrize("name", STORED)
async def test_the_right_password_in_each_stored_form(name: str) -> None:
    auth = static()
    who = await auth.verify_password(name, PASSWORD, encrypted=True)
    assert who == VerifiedIdentity(name, ("bi",), ("dba",))
    for wrong in (PASSWORD + "x", "", "x" * 2000, "\0", "\ud800"):
        with pytest.raises(AuthenticationFailed, match="user name or password is wrong"):
            await auth.verify_password(name, wrong, encrypted=True)


@pytest.mark.parametrize("name", STORED)
async def test_a_password_in_clear_is_refused_unless_allowed(name: str) -> None:
    with pytest.raises(PlaintextCredentialsRefused) as refusal:
        await static().verify_password(name, PASSWORD, encrypted=False)
    assert PASSWORD not in str(refusal.value)
    assert (await static(plaintext=True).verify_password(name, PASSWORD, encrypted=False)).user == name


async def test_an_unknown_user_fails_like_a_wrong_password() -> None:
    auth = static()
    for name in (*STORED, "nobody", "somebody", "Plain", "\ud800"):
        with pytest.raises(AuthenticationFailed, match="user name or password is wrong"):
            await auth.verify_password(name, "wrong", encrypted=True)


def test_an_unknown_user_is_offered_what_a_known_one_is() -> None:
    auth = static()
    offered = {auth.methods(f"user{n}") for n in range(200)}
    assert offered == {auth.methods(name) for name in STORED}
    assert all(auth.methods(f"user{n}") == auth.methods(f"user{n}") for n in range(50))


def test_an_empty_name_gets_in_only_when_nobody_is_required() -> None:
    assert not static().methods("").none
    with pytest.raises(AuthenticationFailed):
        static().trust("")
    auth = static(required=False)
    assert auth.methods("").none
    assert auth.trust("") == VerifiedIdentity("anonymous", authenticated=False)
    for claimed in ("plain", "anonymous", "nobody"):
        assert not auth.methods(claimed).none
        with pytest.raises(AuthenticationFailed):
            auth.trust(claimed)


# bcrypt and other slow checks.


async def test_a_slow_check_runs_off_the_loop_once_and_is_remembered() -> None:
    clock = JumpClock()
    auth = static(clock)
    ran: list[str] = []
    real = LaneThread.run

    async def run(lane: LaneThread, *args: object) -> object:
        ran.append("check")
        return await real(lane, *args)  # type: ignore[arg-type]

    with patch.object(LaneThread, "run", run):
        await asyncio.gather(*(auth.verify_password("bcrypt", PASSWORD, encrypted=True) for _ in range(20)))
        assert len(ran) == 1
        for _ in range(5):
            clock.time += 50
            await auth.verify_password("bcrypt", PASSWORD, encrypted=True)
        assert len(ran) == 1
        clock.time += 61
        await auth.verify_password("bcrypt", PASSWORD, encrypted=True)
        assert len(ran) == 2
        for _ in range(2):
            with pytest.raises(AuthenticationFailed):
                await auth.verify_password("bcrypt", "wrong", encrypted=True)
        assert len(ran) == 4


async def test_no_thread_is_left_behind() -> None:
    auth = static()
    await auth.verify_password("bcrypt", PASSWORD, encrypted=True)
    for thread in threading.enumerate():
        if thread.name == "password-check":
            thread.join(5)
    assert not any(thread.name == "password-check" for thread in threading.enumerate())


async def test_a_waiter_that_gives_up_does_not_spoil_the_check_for_others() -> None:
    auth = static()
    first = asyncio.ensure_future(auth.verify_password("bcrypt", PASSWORD, encrypted=True))
    second = asyncio.ensure_future(auth.verify_password("bcrypt", PASSWORD, encrypted=True))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).user == "bcrypt"
    assert first.cancelled()


async def test_what_is_remembered_and_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "MAX_REMEMBERED", 3)
    monkeypatch.setattr(checks_module, "MAX_WAITING", 2)
    checks = checks_module.PasswordChecks(JumpClock())
    for n in range(5):
        assert await checks.check(f"u{n}", b"pw", lambda _: True)
    assert [checks.remembered(f"u{n}", b"pw") for n in range(5)] == [False, False, True, True, True]
    assert not checks.remembered("u4", b"other")
    waiting = [asyncio.ensure_future(checks.check("u", b"%d" % n, lambda _: True)) for n in range(3)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[:2] == [True, True]
    assert isinstance(results[2], Unavailable)


def test_a_user_and_password_cannot_be_split_elsewhere() -> None:
    checks = checks_module.PasswordChecks(JumpClock())
    assert checks._digest("ab", b"c") != checks._digest("a", b"bc")


# SCRAM.


@pytest.mark.parametrize("name", ["plain", "scram"])
def test_scram_logs_in(name: str) -> None:
    auth = static()
    for _ in range(2):
        client, exchange = ScramClient(PASSWORD.encode()), auth.scram(name)
        final, who = exchange.final(client.final(exchange.first(client.first())))
        assert final == client.expected
        assert who.user == name


@pytest.mark.parametrize("name", ["plain", "scram", "bcrypt", "sha2", "nobody"])
def test_scram_with_a_wrong_password_fails_at_the_end(name: str) -> None:
    auth = static()
    client, exchange = ScramClient(b"wrong"), auth.scram(name)
    final = client.final(exchange.first(client.first()))
    with pytest.raises(AuthenticationFailed, match="user name or password is wrong"):
        exchange.final(final)


def test_the_salt_of_an_unknown_user_stays_the_same() -> None:
    auth = static()
    for name in ("nobody", "plain", "bcrypt"):
        salts = {auth.scram(name).first(b"n,,n=,r=abc").split(b",")[1] for _ in range(3)}
        assert len(salts) == 1, name
    assert (
        auth.scram("x").first(b"n,,n=,r=a").split(b",s=")[1]
        != auth.scram("y").first(b"n,,n=,r=a").split(b",s=")[1]
    )


# caching_sha2_password.


def test_the_fast_path_from_plain_text() -> None:
    auth = static()
    who = auth.verify_caching_sha2("plain", NONCE, client_scramble(PASSWORD.encode(), NONCE))
    assert who == VerifiedIdentity("plain", ("bi",), ("dba",))
    with pytest.raises(AuthenticationFailed):
        auth.verify_caching_sha2("plain", NONCE, client_scramble(b"wrong", NONCE))
    with pytest.raises(AuthenticationFailed):
        auth.verify_caching_sha2("plain", NONCE, b"")


@pytest.mark.parametrize("name", ["bcrypt", "scram", "sha2"])
async def test_the_fast_path_is_learnt_from_a_full_login(name: str) -> None:
    auth = static()
    right = client_scramble(PASSWORD.encode(), NONCE)
    assert auth.verify_caching_sha2(name, NONCE, right) is None
    with pytest.raises(AuthenticationFailed):
        await auth.verify_password(name, "wrong", encrypted=True)
    assert auth.verify_caching_sha2(name, NONCE, client_scramble(b"wrong", NONCE)) is None
    await auth.verify_password(name, PASSWORD, encrypted=True)
    learnt = auth.verify_caching_sha2(name, NONCE, right)
    assert learnt is not None
    assert learnt.user == name
    assert auth.verify_caching_sha2(name, NONCE, client_scramble(b"wrong", NONCE)) is None


def test_an_unknown_user_is_refused_or_asked_for_the_full_path() -> None:
    auth = static()
    for n in range(20):
        try:
            assert auth.verify_caching_sha2(f"user{n}", NONCE, bytes(32)) is None
        except AuthenticationFailed:
            assert auth.methods(f"user{n}").scram


# Tokens.


async def test_a_token_stands_for_its_owner_until_it_lies_idle() -> None:
    clock = JumpClock()
    auth = static(clock)
    who = await auth.verify_password("plain", PASSWORD, encrypted=True)
    token = auth.issue_token(who)
    for _ in range(3):
        clock.time += 7.9 * 3600
        assert await auth.verify_bearer(token, encrypted=True) is who
    with pytest.raises(PlaintextCredentialsRefused):
        await auth.verify_bearer(token, encrypted=False)
    clock.time += 8.1 * 3600
    with pytest.raises(AuthenticationFailed):
        await auth.verify_bearer(token, encrypted=True)


def test_tokens_are_bounded_and_the_longest_unused_goes() -> None:
    clock = JumpClock()
    tokens = Tokens(clock, most=3)
    made = [tokens.issue(VerifiedIdentity(str(n))) for n in range(3)]
    assert tokens.find(made[0]) is not None
    made.append(tokens.issue(VerifiedIdentity("3")))
    assert [tokens.find(token) is not None for token in made] == [True, False, True, True]
    clock.time += 9 * 3600
    tokens.issue(VerifiedIdentity("late"))
    assert len(tokens) == 1
    assert tokens.find("x" * 100_000) is None
    assert tokens.find("\ud800") is None


# Building.


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ("", "the password is empty"),
        ("$2b$99$" + "a" * 53, "bcrypt"),
        ("$2b$12$short", "bcrypt"),
        ("$2$12$" + "a" * 53, "bcrypt"),
        ("SCRAM-SHA-256$nonsense", "SCRAM"),
        ("$A$005$short", "caching_sha2_password"),
        ("0x2441ff", "caching_sha2_password"),
        ("x" * 2000, "longer"),
    ],
)
def test_a_stored_password_that_cannot_be_used(stored: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        build_authenticator(config({"anne": stored}))
    assert "auth.staticUsers.users.anne.password" in refusal.value.message
    assert len(stored) < 5 or stored not in refusal.value.message


def test_configurations_that_are_refused() -> None:
    with pytest.raises(ConfigError, match="oidc"):
        build_authenticator(AuthConfig(provider="oidc"))
    with pytest.raises(ConfigError, match="no users"):
        build_authenticator(config({}))
    with pytest.raises(ConfigError, match="anonymous"):
        build_authenticator(config({"anonymous": "pw"}))


async def test_static_without_users_lets_nobody_in() -> None:
    auth = build_authenticator(config({}, required=False))
    assert auth.methods("anne").password
    with pytest.raises(AuthenticationFailed):
        await auth.verify_password("anne", "none", encrypted=True)


def test_bcrypt_hash_refuses_what_bcrypt_would_cut() -> None:
    with pytest.raises(ValueError, match="72"):
        bcrypt_hash("x" * 73, 4)


async def test_a_long_password_against_a_bcrypt_hash_of_its_first_72_bytes() -> None:
    auth = build_authenticator(config({"anne": bcrypt_hash("x" * 72, 4)}))
    assert (await auth.verify_password("anne", "x" * 80, encrypted=True)).user == "anne"


# Groups.


@pytest.mark.parametrize(
    ("groups", "people", "allowed"),
    [
        ((), (), True),
        (("bi",), (), True),
        (("ml",), (), False),
        ((), ("anne",), True),
        ((), ("bob",), False),
        (("ml",), ("anne",), True),
        (("bi",), ("bob",), True),
        (("ml",), ("bob",), False),
    ],
)
def test_allow_lists(groups: tuple[str, ...], people: tuple[str, ...], allowed: bool) -> None:
    assert may_use_group(VerifiedIdentity("anne", ("bi", "ops")), groups, people) is allowed
