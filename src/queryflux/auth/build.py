"""From the ``auth`` section to an Authenticator."""

from collections.abc import Collection, Mapping
from typing import Protocol

from queryflux.auth.checks import PasswordChecks
from queryflux.auth.passwords import StoredPassword, parse_password
from queryflux.auth.port import Authenticator
from queryflux.auth.static import StaticAuthenticator
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import ANONYMOUS, TrustAuthenticator
from queryflux.model.errors import ConfigError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock, SystemClock


class StaticUser(Protocol):
    """One entry of ``auth.staticUsers.users``."""

    @property
    def password(self) -> Secret: ...
    @property
    def groups(self) -> Collection[str]: ...
    @property
    def roles(self) -> Collection[str]: ...


def build_authenticator(
    provider: str,
    *,
    required: bool = False,
    allow_plaintext: bool = False,
    users: Mapping[str, StaticUser] | None = None,
    clock: Clock | None = None,
    tokens: Tokens | None = None,
) -> Authenticator:
    """``provider`` is ``none`` or ``static``. Cheap: nothing is derived from a password before its user
    connects. Raises ConfigError, naming the user and never the password."""
    clock = clock or SystemClock()
    tokens = tokens or Tokens(clock)
    if provider == "none":
        return TrustAuthenticator(required=required, allow_plaintext=allow_plaintext, tokens=tokens)
    if provider != "static":
        raise ConfigError(f"auth.provider {provider!r} is not supported", hint="use none or static")
    if required and not users:
        raise ConfigError("auth.required is true and auth.staticUsers has no users", hint="add a user")
    return StaticAuthenticator(
        {name: _user(name, user) for name, user in (users or {}).items()},
        required=required,
        allow_plaintext=allow_plaintext,
        tokens=tokens,
        checks=PasswordChecks(clock),
    )


def _user(name: str, user: StaticUser) -> tuple[StoredPassword, VerifiedIdentity]:
    path = f"auth.staticUsers.users.{name}"
    if not name or name == ANONYMOUS:
        raise ConfigError(f"{path}: a user cannot be named {name!r}", hint="choose another name")
    try:
        stored = parse_password(user.password.reveal())
    except ValueError as error:
        raise ConfigError(f"{path}.password: {error}", hint="queryflux hash-password makes one") from None
    return stored, VerifiedIdentity(name, tuple(user.groups), tuple(user.roles))
