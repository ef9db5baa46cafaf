"""What this version does not do is refused by name, and its off values load: nothing is ignored."""

import pytest

from queryflux.config.unavailable import UNAVAILABLE, Feature
from tests.rooms.config.reading import load, problems

Q = "queryflux: { %s }"
D = "clusters: { d: { engine: duckDb, %s } }"
G = "clusters: { d: { engine: duckDb } }\nclusterGroups: { g: { members: [d], %s } }\nroutingFallback: g"

# Pattern of the row, a file that turns the feature on, files that leave it off.
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "queryflux.frontends.clickhouseHttp": (
        Q % "frontends: { clickhouseHttp: { port: 8123 } }",
        (Q % "frontends: { clickhouseHttp: { enabled: false, port: 8123 } }",),
    ),
    "queryflux.frontends.snowflakeHttp": (
        Q % "frontends: { snowflakeHttp: { port: 8445 } }",
        (Q % "frontends: { snowflakeHttp: { enabled: false, port: 8445, sessionMaxAgeSecs: 1 } }",),
    ),
    "queryflux.frontends.mcp": (
        Q % "frontends: { mcp: { port: 8811 } }",
        (Q % "frontends: { mcp: { enabled: false } }",),
    ),
    "clusters.*.engine": ("clusters: { c: { engine: starRocks, endpoint: 'x:1' } }", (D % "threads: 1",)),
    "clusters.*.queryAuth.type": (D % "queryAuth: { type: impersonate }", (D % "queryAuth: {}",)),
    "clusters.*.maxResultBufferBytes": (D % "maxResultBufferBytes: 1", (D % "maxResultBufferBytes: ~",)),
    "clusters.*.healthCheckQuery": (D % "healthCheckQuery: select 1", (D % "healthCheckQuery: ''",)),
    "clusterGroups.*.strategy.type": (
        G % "strategy: { type: weighted, weights: { d: 1 } }",
        tuple(G % f"strategy: {{ type: {name} }}" for name in ("roundRobin", "leastLoaded", "failover")),
    ),
    "clusterGroups.*.circuitBreaker": (G % "circuitBreaker: {}", (G % "circuitBreaker: ~",)),
    "clusterGroups.*.cache.enabled": (
        G % "cache: { enabled: true }",
        (G % "cache: {}", G % "cache: { enabled: false, ttlSecs: 9 }"),
    ),
    "translation.schemaResolutionTimeoutMs": (
        "translation: { schemaResolutionTimeoutMs: 800 }",
        ("translation: { schemaResolutionTimeoutMs: 1500 }",),
    ),
    "catalogProvider.type": (
        "catalogProvider: { type: hiveMetastore, uri: 'thrift://x:9083' }",
        ("catalogProvider: { type: 'null' }",),
    ),
    "guardrails.global.*": (
        "guardrails: { global: [{ kind: built_in, name: read_only }] }",
        ("guardrails: {}", "guardrails: { global: [] }"),
    ),
    "guardrails.groups.*.*": (
        "guardrails: { groups: { g: [{ kind: built_in, name: row_limit, max_rows: 5 }] } }",
        ("guardrails: { groups: { g: [] } }",),
    ),
    "accessControl.connections.*": (
        "accessControl: { connections: { main: { opa: { url: 'http://x' } } } }",
        ("accessControl: {}", "accessControl: { enabled: true, connections: {} }"),
    ),
    "accessControl.defaultConnection": (
        "accessControl: { defaultConnection: main }",
        ("accessControl: { defaultConnection: }",),
    ),
    "accessControl.groups.*": (
        "accessControl: { groups: { g: { failOpen: true } } }",
        ("accessControl: { groups: { g: { enabled: false } } }",),
    ),
    "auth.provider": ("auth: { provider: ldap }", ("auth: { provider: none }",)),
    "auth.oidc": ("auth: { oidc: { issuer: a, jwksUri: b } }", ("auth: { oidc: ~ }",)),
    "auth.ldap": ("auth: { ldap: { url: 'ldap://x', userSearchBase: b } }", ("auth: { ldap: ~ }",)),
    "auth.operatorRoles.*": ("auth: { operatorRoles: [ops] }", ("auth: { operatorRoles: [] }",)),
    "auth.operatorGroups.*": ("auth: { operatorGroups: [ops] }", ("auth: { operatorGroups: [] }",)),
    "authorization.provider": (
        "authorization: { provider: openfga }",
        ("authorization: { provider: none }",),
    ),
    "authorization.openfga": (
        "authorization: { openfga: { url: a, storeId: b, credentials: { method: api_key, api_key: k } } }",
        ("authorization: { openfga: ~ }",),
    ),
    "queryflux.persistence.type": (
        Q % "persistence: { type: redis, url: 'redis://x' }",
        (
            Q % "persistence: { type: inMemory }",
            Q % "persistence: { type: sqlite, path: x.db }",
            Q % "persistence: { type: postgres, url: 'postgres://x/y' }",
        ),
    ),
    "queryflux.otlpEndpoint": (Q % "otlpEndpoint: 'http://x:4317'", (Q % "otlpEndpoint: ''",)),
    "queryflux.cacheBackend": (Q % "cacheBackend: {}", (Q % "cacheBackend: ~",)),
}


def test_every_row_has_a_case() -> None:
    assert list(CASES) == [feature.pattern for feature in UNAVAILABLE]


@pytest.mark.parametrize("feature", UNAVAILABLE, ids=[feature.pattern for feature in UNAVAILABLE])
def test_a_feature_that_is_not_there_is_refused_by_name(feature: Feature) -> None:
    on, off = CASES[feature.pattern]
    refused = [item for item in problems(on) if "not available in this version" in item.message]
    assert [item for item in refused if feature.what in item.message], problems(on)
    assert all(item.line for item in refused)
    for text in off:
        assert load(text)


def test_what_is_refused_is_told_beside_other_problems() -> None:
    found = problems(
        "queryflux: { cacheBackend: {} }\nfoo: 1\nclusters: { a: { engine: athena, regoin: x } }"
    )
    assert [item.path for item in found] == [
        "queryflux.cacheBackend",
        "foo",
        "clusters.a.engine",
        "clusters.a.regoin",
    ]
