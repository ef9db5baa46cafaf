"""``guardrails`` (snake_case keys) and ``accessControl``: rules about what a query may do."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from queryflux.config.kinds import Count
from queryflux.model.secret import Secret


class Guard(Struct, frozen=True, kw_only=True):
    """One guard. Which fields belong to which ``kind`` is checked at load."""

    kind: Literal["built_in", "python_script", "http_webhook"]
    """What decides."""
    name: Literal["read_only", "row_limit", "require_predicate"] | None = None
    """Which rule (built_in)."""
    max_rows: Count | None = None
    """Largest LIMIT that is let through (row_limit)."""
    applies_to: tuple[str, ...] = ()
    """Tables, with `*` for any characters; empty: all (require_predicate)."""
    script_id: Count | None = None
    """Id of a stored script (python_script)."""
    script: str | None = None
    """The script itself (python_script)."""
    url: str | None = None
    """Address to ask (http_webhook)."""
    timeout_ms: Count | None = None
    """Longest wait (http_webhook, python_script)."""
    retry_count: Count | None = None
    """Tries after the first (http_webhook)."""
    fail_behavior: Literal["deny", "allow"] = "deny"
    """What a webhook that does not answer means."""
    headers: Mapping[str, Secret] = field(default_factory=dict)
    """Headers to send (http_webhook)."""


class GuardrailsConfig(Struct, frozen=True, kw_only=True, rename={"global_": "global"}):
    """Guards over translated SQL; the first that denies ends the query."""

    global_: tuple[Guard, ...] = ()
    """Guards of every group."""
    groups: Mapping[str, tuple[Guard, ...]] = field(default_factory=dict)
    """Guards of one group, after the global ones."""


class PolicyClientCredentials(Struct, frozen=True, rename="camel", kw_only=True):
    """OAuth 2 client credentials for a policy server."""

    client_id: str
    """Client id."""
    client_secret: Secret
    """Client secret."""
    token_endpoint: str
    """Token endpoint; https, except on this machine."""


class OpaConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """An Open Policy Agent server."""

    url: str
    """Address, http or https."""
    decision_path: str = "/v1/data/queryflux/access"
    """Path of the decision; begins with `/`."""
    timeout_ms: Count = 1000
    """Longest wait."""
    bearer_token: Secret | None = None
    """Token to send."""
    client_credentials: PolicyClientCredentials | None = None
    """Credentials to get a token with."""


class CerbosConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """A Cerbos server."""

    url: str
    """Address, http or https."""
    check_resources_path: str = "/api/check/resources"
    """Path of the check."""
    timeout_ms: Count = 1000
    """Longest wait."""
    bearer_token: Secret | None = None
    """Token to send."""


Operation = Literal[
    "table.select", "table.insert", "table.update", "table.delete", "table.merge", "table.truncate"
]


class AccessConnection(Struct, frozen=True, rename="camel", kw_only=True):
    """One policy server, and what it is asked about."""

    provider: Literal["opa", "cerbos"] = "opa"
    """Which kind of server."""
    opa: OpaConfig | None = None
    """The server for `provider: opa`."""
    cerbos: CerbosConfig | None = None
    """The server for `provider: cerbos`."""
    operations: tuple[Operation, ...] = ("table.select",)
    """What is asked about; anything else is let through."""
    on_missing_schema: Literal["evaluate", "deny"] = "evaluate"
    """What happens when the columns of a table are not known."""
    fail_open: bool = False
    """Let queries through when the server does not answer."""
    cache_ttl_ms: Count = 5000
    """How long a decision is good for; 0: not kept."""
    cache_capacity: Count = 10000
    """How many decisions are kept."""
    session_param_keys: tuple[str, ...] = ()
    """Session values sent along."""


class AccessGroup(Struct, frozen=True, rename="camel", kw_only=True):
    """What differs for one cluster group."""

    enabled: bool | None = None
    """Whether the group is checked; absent: as `accessControl.enabled`."""
    fail_open: bool | None = None
    """Absent: as the connection says."""
    connection: str | None = None
    """Absent: `defaultConnection`."""


class AccessControlConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """Tables, rows and columns that a user may see, decided by a policy server."""

    enabled: bool = True
    """Whether groups without a value of their own are checked."""
    default_connection: str | None = None
    """Connection of groups that name none; absent: they are not checked."""
    connections: Mapping[str, AccessConnection] = field(default_factory=dict)
    """Policy servers by name."""
    groups: Mapping[str, AccessGroup] = field(default_factory=dict)
    """What differs by cluster group."""
