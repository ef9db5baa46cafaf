"""The operator's name and password.

Once a password has been changed here it counts, as a bcrypt hash among the stored settings, whatever the
configuration says; before that the environment's, else the file's (config/loader.py has put them together).
"""

import asyncio
import contextlib
import ipaddress
import logging
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from queryflux.auth.checks import PasswordChecks
from queryflux.auth.hashes import HASHES
from queryflux.auth.passwords import BCRYPT_BYTES, StoredPassword, parse_password
from queryflux.config.listeners import AdminApiConfig
from queryflux.config.problems import Problem
from queryflux.config.store import ConfigStore
from queryflux.controlplane.attempts import Attempts
from queryflux.controlplane.errors import Changed, DefaultPassword, Refused
from queryflux.model.errors import (
    AuthenticationFailed,
    ConfigConflict,
    ConfigError,
    InternalError,
    StoreUnavailable,
)
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock
from queryflux.runtime.threads import in_thread

log = logging.getLogger(__name__)

SETTING = "admin_credentials"
"""Key among the stored settings: ``{"username": ..., "password_hash": ...}``."""

LOOK_AGAIN_SECS = 1.0
"""How long another process's change of the password may go unseen."""
PATIENCE_SECS = 2.0
"""How long a log-in waits for the store when it can do without."""
LOST_SECS = 10.0
"""How long a store that does not answer is left alone."""

MIN_LENGTH = 8
_DEFAULT = AdminApiConfig().password
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")
_ONLY_HERE = (
    "the operator's password is still the default one, so /admin answers only clients on the machine that "
    "QueryFlux runs on"
)
_CHANGE_IT = (
    "set QUERYFLUX_ADMIN_PASSWORD or queryflux.adminApi.passwordFile, or change it from that machine with "
    "POST /admin/auth/change-password"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. ``forwarded``: a proxy says that it speaks for somebody else; ``host`` is the
    name that the request was sent to, without a port."""

    peer: str
    host: str
    forwarded: bool

    @property
    def on_this_machine(self) -> bool:
        """Nobody else can be behind it: neither a proxy's client, nor a page in a browser here that a
        foreign name led to loopback."""
        return not self.forwarded and self.host in _LOOPBACK_NAMES and _is_loopback(self.peer)


@dataclass(frozen=True, slots=True)
class _Credentials:
    """What is right now. ``stored`` is the setting behind it, if there is one; ``seen`` the state of the
    store that it was read from."""

    username: str
    password: StoredPassword
    checks: PasswordChecks
    stored: Any
    seen: tuple[str, int]

    @property
    def changed(self) -> bool:
        return self.stored is not None


class Login:
    """Checks operators."""

    def __init__(self, config: AdminApiConfig, store: ConfigStore, clock: Clock) -> None:
        """Raises ConfigError when the configured password is none."""
        try:
            self._configured = parse_password(config.password.reveal())
        except ValueError as error:
            raise ConfigError(f"queryflux.adminApi.password: {error}", hint="set another") from None
        self._username = config.username
        self._password = config.password
        self._store = store
        self._clock = clock
        self._attempts = Attempts(clock)
        self._known: _Credentials | None = None
        self._look_at = 0.0

    async def look(self) -> None:
        """Learn what is right before anybody asks, so that operators get in also when the store is lost
        before the first of them comes. What fails is told to that one."""
        with contextlib.suppress(StoreUnavailable, InternalError, TimeoutError):
            async with asyncio.timeout(PATIENCE_SECS):
                await self._credentials()

    async def status(self) -> dict[str, Any]:
        """What ``GET /admin/auth/status`` tells."""
        now = await self._credentials()
        return {
            "db_override": now.changed,
            "default_password": self._is_default(now),
            "username": now.username,
        }

    async def check(self, caller: Caller, credentials: tuple[str, str] | None) -> None:
        """Return when these credentials (name, password) are right. Raises AuthenticationFailed,
        DefaultPassword, TooManyAttempts, StoreUnavailable, InternalError."""
        now = await self._credentials()
        if self._is_default(now) and not caller.on_this_machine:
            raise DefaultPassword(_ONLY_HERE, hint=_CHANGE_IT)
        if credentials is None:
            raise AuthenticationFailed("a user name and a password are required", hint="use HTTP Basic")
        if not await self._attempt(caller.peer, now, *credentials):
            log.warning("a log-in of an operator failed, from %s", caller.peer)
            raise AuthenticationFailed("user name or password is wrong")

    async def _attempt(self, peer: str, now: _Credentials, username: str, password: str) -> bool:
        raw = password.encode()
        self._attempts.begin(
            peer
        )  # also for who was right a moment ago: else guessing would go on at full speed
        right: bool | None = None
        try:
            right = now.checks.remembered(username, raw) or await self._matches(now, username, raw)
        finally:
            self._attempts.end(peer, right=right)
        return right

    async def _matches(self, now: _Credentials, username: str, raw: bytes) -> bool:
        """Both are always looked at, so that time tells nothing about either; off the loop, for bcrypt takes
        its time."""
        named = Secret(now.username).matches(username)
        accepts = now.password.accepts
        return await now.checks.check(username, raw, lambda given: accepts(given) & named)

    async def change(self, caller: Caller, current: str, new: str) -> None:
        """Another password, from now on and in every process that shares the store. Raises Refused,
        TooManyAttempts, Changed, StoreUnavailable."""
        now = await self._credentials()
        if not await self._attempt(caller.peer, now, now.username, current):
            raise _wrong("current_password", "is not the current password")
        if len(new) < MIN_LENGTH:
            raise _wrong("new_password", f"has fewer than {MIN_LENGTH} characters")
        if len(new.encode()) > BCRYPT_BYTES:
            raise _wrong("new_password", f"has more than {BCRYPT_BYTES} bytes, and bcrypt looks at no more")
        value = {
            "username": now.username,
            "password_hash": await in_thread("password-hash", HASHES["bcrypt"], new),
        }
        stored = await self._store.load()
        settings = {**stored.tables.settings, SETTING: value}
        try:
            await self._store.save(stored, replace(stored.tables, settings=settings))
        except ConfigConflict:
            raise Changed("the configuration changed at this moment", hint="try again") from None
        self._look_at = 0.0
        log.warning("the operator's password was changed, from %s", caller.peer)

    def _is_default(self, now: _Credentials) -> bool:
        return not now.changed and self._password == _DEFAULT

    async def _credentials(self) -> _Credentials:
        """What is right now, asked of the store at most once a second. While the store does not answer, or
        has a row that cannot be read, what was right last, for operators are needed most then; never the
        file's once another may have been set. Raises StoreUnavailable, InternalError."""
        known = self._known
        if known is not None and self._clock.monotonic() < self._look_at:
            return known
        again = LOOK_AGAIN_SECS
        try:
            async with asyncio.timeout(None if known is None else PATIENCE_SECS):
                if known is None or await self._store.revision() != known.seen:
                    known = await self._load()
        except (StoreUnavailable, TimeoutError, ConfigError) as error:
            if known is None:
                # Whoever asks is nobody yet: where the database is and what it said is for the log alone.
                raise StoreUnavailable("the operator's password cannot be read from the store") from error
            again = LOST_SECS
        self._known = known
        self._look_at = self._clock.monotonic() + again
        return known

    async def _load(self) -> _Credentials:
        stored = await self._store.load()
        seen = (stored.epoch, stored.sequence)
        value = stored.tables.settings.get(SETTING)
        if self._known is not None and value == self._known.stored:
            return replaced(
                self._known, seen=seen
            )  # and what was right a moment ago need not be checked again
        if value is None:
            return _Credentials(self._username, self._configured, PasswordChecks(self._clock), None, seen)
        try:
            username, password = str(value["username"]), parse_password(value["password_hash"])
        except (KeyError, TypeError, ValueError):
            raise InternalError(
                f"the stored setting {SETTING} is broken: nobody can log in",
                hint="delete its row from proxy_settings; the configured password then counts again",
            ) from None
        return _Credentials(username, password, PasswordChecks(self._clock), value, seen)


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _wrong(key: str, message: str) -> Refused:
    return Refused("the password was not changed", problems=[Problem(0, 0, key, message)])
