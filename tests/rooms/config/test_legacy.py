"""Files from earlier versions: each old form loads as today's does, with exactly one warning."""

import textwrap

import pytest

from queryflux.config.loader import load_bytes
from queryflux.config.problems import ConfigProblems
from queryflux.config.snapshot import revision_of
from tests.rooms.config.reading import SOUND, load, only, problems

OLD_AND_NEW: list[tuple[str, str, str, str]] = [
    (
        "admin API at the root",
        "adminApi: { port: 9001, username: ada }\n",
        "queryflux: { adminApi: { port: 9001, username: ada } }\n",
        "adminApi",
    ),
    (
        "auth under queryflux",
        "queryflux: { auth: { staticUsers: { users: {} }, allowPlaintextCredentials: true } }",
        "auth: { allowPlaintextCredentials: true }",
        "queryflux.auth",
    ),
    (
        "routing under queryflux, in snake_case elsewhere",
        "queryflux: { translation: { mode: strict } }",
        "translation: { mode: strict }",
        "queryflux.translation",
    ),
    (
        "static instead of staticUsers",
        "auth: { provider: static, static: { users: { a: { password: x } } },"
        " allowPlaintextCredentials: true }",
        "auth: { provider: static, staticUsers: { users: { a: { password: x } } },"
        " allowPlaintextCredentials: true }",
        "auth.static",
    ),
    (
        "clusters in their group, as a list",
        """\
        clusterGroups:
          east:
            engine: trino
            maxRunningQueries: 4
            clusters:
              - { name: t1, endpoint: "http://t1:8080", maxRunningQueries: 2 }
              - { name: t2, endpoint: "http://t2:8080" }
        routingFallback: east
        """,
        """\
        clusters:
          t1: { engine: trino, endpoint: "http://t1:8080", maxRunningQueries: 2 }
          t2: { engine: trino, endpoint: "http://t2:8080" }
        clusterGroups: { east: { members: [t1, t2], maxRunningQueries: 4 } }
        routingFallback: east
        """,
        "clusterGroups.east",
    ),
    (
        "clusters in their group, by name",
        "clusterGroups: { g: { engine: trino, clusters: { d: { engine: duckDb } } } }\nroutingFallback: g",
        "clusters: { d: { engine: duckDb } }\nclusterGroups: { g: { members: [d] } }\nroutingFallback: g",
        "clusterGroups.g",
    ),
    (
        "a bare null",
        "catalogProvider: { type: null }",
        'catalogProvider: { type: "null" }',
        "catalogProvider.type",
    ),
    ("a bare tilde", "catalogProvider: { type: ~ }", "", "catalogProvider.type"),
    ("snake_case", "routing_fallback: ''", "routingFallback: ''", "routing_fallback"),
]


@pytest.mark.parametrize(
    ("old", "new", "path"), [row[1:] for row in OLD_AND_NEW], ids=[r[0] for r in OLD_AND_NEW]
)
def test_an_old_form_loads_as_the_new_one_with_one_warning(old: str, new: str, path: str) -> None:
    loaded, today = load(old), load(new)
    assert loaded.config == today.config
    assert revision_of(loaded.snapshot) == revision_of(today.snapshot)
    extra = [
        item
        for item in loaded.warnings
        if (item.path, item.message) not in {(known.path, known.message) for known in today.warnings}
    ]
    assert [item.path for item in extra] == [path]
    assert extra[0].hint
    assert extra[0].line


def test_the_admin_api_under_queryflux_wins() -> None:
    loaded = load("adminApi: { port: 1 }\nqueryflux: { adminApi: { port: 2 } }")
    assert loaded.config.queryflux.admin_api.port == 2
    warning = loaded.warnings[0]
    assert [item.path for item in loaded.warnings] == ["adminApi", "auth.provider", "clusterGroups"]
    assert "is used" in warning.message


def test_the_admin_api_at_the_root_needs_no_queryflux_section() -> None:
    for text in ("adminApi: { port: 1 }", "adminApi: { port: 1 }\nqueryflux:\n"):
        assert load(text).config.queryflux.admin_api.port == 1


def test_a_section_in_both_places_is_refused() -> None:
    problem = only("auth: {}\nqueryflux: { auth: { required: true } }")
    assert problem.path == "queryflux.auth"
    assert "keep the one at the root" in problem.hint


def test_old_groups_keep_their_own_faults() -> None:
    found = problems("""\
        clusters: { a: { engine: duckDb } }
        clusterGroups:
          one: { engine: duckDb, clusters: [{ name: a }] }
          two: { engine: duckDb, clusters: [{ databasePath: x }] }
          three: { engine: duckDb, clusters: x }
        """)
    assert [item.path for item in found] == [
        "clusterGroups.one.clusters",
        "clusterGroups.two.clusters[0]",
        "clusterGroups.three.clusters",
    ]


def test_an_old_group_that_stands_twice_by_alias_is_read_twice() -> None:
    found = problems("""\
        clusterGroups:
          one: &one { engine: duckDb, clusters: [{ name: a }] }
          two: *one
        """)
    assert ["another cluster named a" in item.message for item in found] == [True]


def test_adbc_keys_give_one_warning_and_the_engine_is_refused() -> None:
    text = """\
        clusters:
          snow: { engine: adbc, driver: snowflake, uri: "u:hunter2@x", dbKwargs: { k: hunter2 } }
        """
    with pytest.raises(ConfigProblems) as caught:
        load_bytes(textwrap.dedent(text).encode(), {})
    assert [item.path for item in caught.value.problems] == ["clusters.snow.engine"]
    assert [item.path for item in caught.value.warnings] == [
        "clusters.snow",
        "auth.provider",
        "clusterGroups",
    ]
    assert "hunter2" not in f"{caught.value} {caught.value.warnings}"


def test_a_guard_in_its_old_form_is_read() -> None:
    text = """\
        guardrails:
          global:
            - { kind: { http_webhook: { url: "http://x", timeout_ms: 3 } }, timeout_ms: 4 }
          groups: { g: [{ kind: { built_in: { name: read_only } } }] }
        """
    found = problems(text)
    assert [item.path for item in found] == ["guardrails.global[0]", "guardrails.groups.g[0]"]
    assert all("not available in this version" in item.message for item in found)


def test_flat_access_control_is_refused_with_its_new_spelling() -> None:
    problem = only(SOUND + "accessControl: { provider: opa, opa: { url: http://policy:8181 } }\n")
    assert problem.path == "accessControl.provider"
    assert "accessControl.connections.main.opa" in problem.hint
    assert "accessControl.defaultConnection" in problem.hint
