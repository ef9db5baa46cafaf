"""What the schema knows and this version does not do: refused at load, by name.

One row for each feature: the places of its keys (``*`` stands for any name or position), the values that mean
"off", and what it is. A feature that arrives deletes its row. A value that is a mapping of one key in
``off`` matches a block in which that key has that value.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from queryflux.config.problems import Path
from queryflux.config.walk import Reading


class Feature(NamedTuple):
    """One row."""

    pattern: str
    off: tuple[object, ...]
    what: str


DISABLED = {"enabled": False}

UNAVAILABLE = (
    # Doors.
    Feature("queryflux.frontends.clickhouseHttp", (DISABLED,), "the ClickHouse door"),
    Feature("queryflux.frontends.snowflakeHttp", (DISABLED,), "the Snowflake door"),
    Feature("queryflux.frontends.mcp", (DISABLED,), "the MCP door"),
    # Engines.
    Feature("clusters.*.engine", ("trino", "duckDb", "postgres"), "this engine"),
    Feature("clusters.*.queryAuth.type", ("serviceAccount",), "running queries with the user's credentials"),
    Feature("clusters.*.maxResultBufferBytes", (), "a bound on buffered results (results are streamed)"),
    Feature("clusters.*.healthCheckQuery", ("",), "a health check of one's own"),
    # Groups.
    Feature(
        "clusterGroups.*.strategy.type",
        ("roundRobin", "leastLoaded", "failover"),
        "this strategy",
    ),
    Feature("clusterGroups.*.circuitBreaker", (), "the circuit breaker"),
    Feature("clusterGroups.*.cache.enabled", (False,), "the result cache"),
    # Translation, catalog, policy.
    Feature("translation.schemaResolutionTimeoutMs", (1500,), "translation with table schemas"),
    Feature("catalogProvider.type", ("null",), "this catalog provider"),
    Feature("guardrails.global.*", (), "guardrails"),
    Feature("guardrails.groups.*.*", (), "guardrails"),
    Feature("accessControl.connections.*", (), "access control"),
    Feature("accessControl.defaultConnection", (), "access control"),
    Feature("accessControl.groups.*", (DISABLED,), "access control"),
    # Identity.
    Feature("auth.provider", ("none", "static"), "this provider of identities"),
    Feature("auth.oidc", (), "OpenID Connect"),
    Feature("auth.ldap", (), "LDAP"),
    Feature("auth.operatorRoles.*", (), "cancelling other users' queries by role"),
    Feature("auth.operatorGroups.*", (), "cancelling other users' queries by group"),
    Feature("authorization.provider", ("none",), "this provider of authorization"),
    Feature("authorization.openfga", (), "OpenFGA"),
    # The process.
    Feature("queryflux.persistence.type", ("inMemory", "sqlite", "postgres"), "this persistence"),
    Feature("queryflux.otlpEndpoint", ("",), "trace export"),
    Feature("queryflux.cacheBackend", (), "the result cache"),
)


def refuse_unavailable(data: Mapping[str, Any], reading: Reading) -> None:
    """Complain about every key in ``data`` (what the walk gave) whose feature is not there."""
    for feature in UNAVAILABLE:
        for path, value in _matches(data, tuple(feature.pattern.split(".")), (), reading):
            if not any(_is_off(value, off) for off in feature.off):
                shown = f' "{value}"' if isinstance(value, str) and feature.what.startswith("this ") else ""
                message = f"not available in this version: {feature.what}{shown}"
                reading.problem(path, message, _advice(feature.off))


def _matches(
    value: Any, pattern: tuple[str, ...], path: Path, reading: Reading
) -> Iterator[tuple[Path, Any]]:
    if not pattern:
        yield path, value
    elif isinstance(value, Mapping):
        keys = list(value) if pattern[0] == "*" else [pattern[0]] if pattern[0] in value else []
        for key in keys:
            yield from _matches(value[key], pattern[1:], (*path, key), reading)
    elif isinstance(value, list) and pattern[0] == "*":
        for index, item in enumerate(value):
            yield from _matches(item, pattern[1:], reading.item_path(path, index), reading)


def _is_off(value: Any, off: object) -> bool:
    if isinstance(off, Mapping) and isinstance(value, Mapping):
        return all(value.get(key) == wanted for key, wanted in off.items())
    return bool(value == off) and type(value) is type(off)


def _advice(off: tuple[object, ...]) -> str:
    words = [word(value) for value in off if value != ""]
    return f"remove it, or set {' or '.join(words)}" if words else "remove it"


def word(value: object) -> str:
    """How a value is written in YAML."""
    if isinstance(value, Mapping):
        return "enabled: false"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
