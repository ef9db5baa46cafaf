"""``auth`` and ``authorization``: who may come in, and who may use which group."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from queryflux.model.secret import Secret


class StaticUser(Struct, frozen=True, rename="camel", kw_only=True):
    """One user of ``provider: static``."""

    password: Secret
    """Plain text, or what `queryflux hash-password` makes: bcrypt, a PostgreSQL SCRAM-SHA-256 verifier, a
    MySQL caching_sha2 hash."""
    groups: tuple[str, ...] = ()
    """Groups that the user belongs to."""
    roles: tuple[str, ...] = ()
    """Roles that the user has."""


class StaticUsers(Struct, frozen=True, rename="camel", kw_only=True):
    """Users written in the configuration."""

    users: Mapping[str, StaticUser] = field(default_factory=dict)
    """User by name."""


class OidcConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Bearer tokens of an OpenID Connect issuer."""

    issuer: str
    """Issuer that tokens must name."""
    jwks_uri: str
    """Where the issuer publishes its keys."""
    audience: str | None = None
    """Audience that tokens must name; needed with `required`."""
    groups_claim: str = "groups"
    """Claim that lists groups."""
    roles_claim: str | None = None
    """Claim that lists roles; a dotted path is allowed."""
    attribute_claims: tuple[str, ...] = ()
    """Claims to keep as attributes; dotted paths are allowed."""


class LdapConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Passwords checked by an LDAP directory."""

    url: str
    """Address of the directory."""
    bind_dn: str = ""
    """Account that searches; empty: anonymous."""
    bind_password: Secret | None = None
    """Its password."""
    user_search_base: str
    """Where users are searched."""
    user_search_filter: str = "(uid={})"
    """How a user is found; `{}` is the escaped name."""
    user_dn_template: str | None = None
    """DN of a user, with `{}` for the name; replaces the search."""
    group_search_base: str | None = None
    """Where groups are searched; absent: the user's `memberOf`."""
    group_name_attribute: str = "cn"
    """Attribute that names a group."""


class AuthConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Who is asking."""

    provider: Literal["none", "static", "oidc", "ldap"] = "none"
    """`none`: a client's word is taken; `static`: the users under `staticUsers`."""
    required: bool = False
    """Refuse clients that name nobody."""
    allow_plaintext_credentials: bool = False
    """Let passwords travel over connections without TLS."""
    static_users: StaticUsers = StaticUsers()
    """Users for `provider: static`."""
    oidc: OidcConfig | None = None
    """Issuer for `provider: oidc`."""
    ldap: LdapConfig | None = None
    """Directory for `provider: ldap`."""
    operator_roles: tuple[str, ...] = ()
    """Roles that may cancel anybody's query."""
    operator_groups: tuple[str, ...] = ()
    """Groups that may cancel anybody's query."""


class OpenFgaCredentials(Struct, frozen=True, kw_only=True):
    """How we prove ourselves to OpenFGA. These keys are snake_case."""

    method: Literal["none", "api_key", "client_credentials"] = "none"
    """How."""
    api_key: Secret | None = None
    """Key (api_key)."""
    client_id: str | None = None
    """Client id (client_credentials)."""
    client_secret: Secret | None = None
    """Client secret (client_credentials)."""
    token_endpoint: str | None = None
    """Token endpoint (client_credentials)."""


class OpenFgaConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Group access decided by an OpenFGA store."""

    url: str
    """Address of the server."""
    store_id: str
    """Id of the store."""
    credentials: OpenFgaCredentials | None = None
    """How we prove ourselves; absent: not at all."""


class AuthorizationConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Who may use which group."""

    provider: Literal["none", "openfga"] = "none"
    """`none`: the `authorization` lists of each group."""
    openfga: OpenFgaConfig | None = None
    """Store for `provider: openfga`."""
