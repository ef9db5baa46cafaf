"""From the ``auth`` section to an Authenticator."""

from queryflux.auth.checks import PasswordChecks
from queryflux.auth.passwords import StoredPassword, parse_password
from queryflux.auth.port import Authenticator
from queryflux.auth.static import StaticAuthenticator
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import ANONYMOUS, TrustAuthenticator
from queryflux.config.auth import AuthConfig, StaticUser
from queryflux.model.errors import ConfigError
from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.clock import Clock, SystemClock


def build_authenticator(config: AuthConfig, clock: Clock | None = None) -> Authenticator:
    """For ``provider`` none and static. Cheap: nothing is derived from a password before its user connects.
    Raises ConfigError, naming the user and never the password."""
    clock = clock or SystemClock()
    required, allow_plaintext = config.required, config.allow_plaintext_credentials
    if config.provider == "none":
        return TrustAuthenticator(required=required, allow_plaintext=allow_plaintext, tokens=Tokens(clock))
    if config.provider != "static":
        raise ConfigError(f"auth.provider {config.provider!r} is not supported", hint="use none or static")
    users = config.static_users.users
    if required and not users:
        raise ConfigError("auth.required is true and auth.staticUsers has no users", hint="add a user")
    return StaticAuthenticator(
        {name: _user(name, user) for name, user in users.items()},
        required=required,
        allow_plaintext=allow_plaintext,
        tokens=Tokens(clock),
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
