"""The walk: types, variables, secrets from files, unknown keys; all problems at once."""

from pathlib import Path

import pytest

from queryflux.config.persistence import InMemoryPersistence
from queryflux.config.problems import ConfigProblems, problems_json, render_problems
from tests.rooms.config.reading import SOUND, load, only, paths, problems, warnings


def test_a_sound_file_loads_without_a_word() -> None:
    assert not load(
        "queryflux: { frontends: { trinoHttp: { host: 127.0.0.1, port: 8080 } } }" + SOUND
    ).warnings


def test_every_problem_comes_at_once_in_the_order_of_the_file() -> None:
    found = problems("""\
        queryflux:
          fronteds: {}
          frontends:
            postgresWire: { port: 99999 }
            mysqlWire: { port: many }
          maxStatementBytes: 0
        clusters:
          east: { engine: trinoo, endpoint: "http://east:8080" }
          west: { endpoint: "http://west:8080" }
        clusterGroups:
          bi: { members: [east, wst] }
        routers:
          - { type: header, headerName: x }
          - { type: protocolBased, postgresWire: bo }
        routingFallback: by
        """)
    assert [(item.line, item.path) for item in found] == [
        (2, "queryflux.fronteds"),
        (4, "queryflux.frontends.postgresWire.port"),
        (5, "queryflux.frontends.mysqlWire.port"),
        (6, "queryflux.maxStatementBytes"),
        (8, "clusters.east.engine"),
        (9, "clusters.west.engine"),
        (11, "clusterGroups.bi.members[1]"),
        (13, "routers[0].headerValueToGroup"),
        (14, "routers[1].postgresWire"),
        (15, "routingFallback"),
    ]
    hints = [item.hint for item in found]
    assert hints[0] == "did you mean frontends?"
    assert hints[4] == "did you mean trino?"
    assert hints[6] == "did you mean west?"


def test_a_file_that_is_wrong_everywhere_is_told_so_in_bounded_time() -> None:
    groups = "".join(f"  g{n}: {{ members: [c{n}] }}\n" for n in range(3000))
    found = problems(f"clusterGroups:\n{groups}")
    assert len(found) == 501
    assert "there is more" in found[-1].message


def test_problems_are_shown_to_people_and_programs() -> None:
    with pytest.raises(ConfigProblems) as caught:
        load("clustrs: {}\n")
    assert render_problems(caught.value.problems) == (
        'line 1, column 1: clustrs: unknown key "clustrs" (did you mean clusters?)'
    )
    assert problems_json(caught.value.problems) == [
        {
            "line": 1,
            "column": 1,
            "path": "clustrs",
            "message": 'unknown key "clustrs"',
            "hint": "did you mean clusters?",
        }
    ]
    assert str(caught.value) == render_problems(caught.value.problems)


SHAPES = [
    ("clusters: []", "clusters", "expected a mapping of names, found a list"),
    ("clusters: 3", "clusters", "expected a mapping of names, found a single value"),
    ("clusters: { a: }", "clusters.a", "expected a mapping, found nothing"),
    ("routers: {}", "routers", "expected a list, found a mapping"),
    ("routers: [x]", "routers[0]", "expected a mapping with type, found a single value"),
    ("routers: [{}]", "routers[0].type", "is required"),
    ("routers: [{type: [a]}]", "routers[0].type", "expected a word, found a list"),
    ("routingFallback: [a]", "routingFallback", "expected a text, found a list"),
    ("auth: { required: maybe }", "auth.required", 'expected true or false, found "maybe"'),
    (
        "clusterGroups: { a: { members: [~] } }",
        "clusterGroups.a.members[0]",
        "expected a text, found nothing",
    ),
    ("queryflux: { maxStatementBytes: 1.5 }", "queryflux.maxStatementBytes", 'whole number, found "1.5"'),
    ("queryflux: { shutdownDrainTimeoutSecs: .inf }", "queryflux.shutdownDrainTimeoutSecs", "a number"),
    ("queryflux: { shutdownDrainTimeoutSecs: nan }", "queryflux.shutdownDrainTimeoutSecs", "a number"),
    ("queryflux: { shutdownDrainTimeoutSecs: -1 }", "queryflux.shutdownDrainTimeoutSecs", "at least 0"),
    ("queryflux: { logging: { level: loud } }", "queryflux.logging.level", "not one of the known values"),
    ('"odd key": 1', '"odd key"', "unknown key"),
]


@pytest.mark.parametrize(("text", "path", "words"), SHAPES, ids=[row[0] for row in SHAPES])
def test_a_wrong_shape_is_told_with_its_path(text: str, path: str, words: str) -> None:
    problem = only(text)
    assert problem.path == path
    assert words in problem.message
    assert problem.line == 1


def test_scalars_become_what_their_key_is() -> None:
    loaded = load("""\
        queryflux:
          frontends: { trinoHttp: { enabled: "yes", port: "8081", maxConnections: 1_000 } }
          adminApi: { username: 007, password: 1e3 }
          shutdownDrainTimeoutSecs: 5
        clusters: { duck: { engine: duckDb, memoryLimit: 80%, threads: ~ } }
        routingFallback:
        """)
    process = loaded.config.queryflux
    assert process.frontends.trino_http.enabled is True
    assert process.frontends.trino_http.port == 8081
    assert process.frontends.trino_http.max_connections == 1000
    assert process.admin_api.username == "007"
    assert process.admin_api.password.reveal() == "1e3"
    assert process.shutdown_drain_timeout_secs == 5.0
    assert loaded.config.clusters["duck"].threads is None
    assert loaded.config.routing_fallback == ""


def test_variables_are_replaced_in_every_value() -> None:
    text = """\
        queryflux:
          frontends: { postgresWire: { port: "${PORT}", host: "${HOST:-127.0.0.1}" } }
          externalAddress: https://${NAME}.${DOMAIN:-example.org}
          logging: { level: "${EMPTY:-debug}" }
        clusters:
          duck: { engine: duckDb, threads: "${THREADS:-2}", memoryLimit: "${NONE:-}1GB" }
        clusterGroups:
          pool:
            members: ["${MEMBER:-duck}"]
            defaultTags: { cost: "$${not a variable}", twice: "${TWICE}" }
            maxQueuedQueries: ${ABSENT:-}
        """
    loaded = load(text, {"PORT": "5433", "NAME": "q", "EMPTY": "", "TWICE": "${PORT}"})
    process = loaded.config.queryflux
    assert process.frontends.postgres_wire is not None
    assert process.frontends.postgres_wire.port == 5433
    assert process.frontends.postgres_wire.host == "127.0.0.1"
    assert process.external_address == "https://q.example.org"
    assert process.logging.level == "debug"
    assert loaded.config.clusters["duck"].threads == 2
    group = loaded.config.cluster_groups["pool"]
    assert group.members == ("duck",)
    assert group.default_tags == {"cost": "${not a variable}", "twice": "${PORT}"}
    assert group.max_queued_queries is None


def test_a_variable_that_cannot_be_replaced_is_told() -> None:
    found = problems("routingFallback: ${GROUP}\nqueryflux: { instanceId: '${not-a-name}' }\n")
    assert [item.path for item in found] == ["routingFallback", "queryflux.instanceId"]
    assert "GROUP is not set" in found[0].message
    assert "$${" in found[1].hint


def test_bytes_of_the_environment_that_are_no_text_are_refused() -> None:
    assert "not UTF-8" in only("routingFallback: ${A}", {"A": "x\udcff"}).message


def test_what_the_environment_gives_is_never_shown() -> None:
    text = (
        "queryflux: { logging: { level: '${A}' }, maxStatementBytes: '${A}', persistence: { type: '${A}' } }"
    )
    found = problems(text, {"A": "hunter2"})
    assert len(found) == 3
    assert "hunter2" not in render_problems(found)


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    for content, expected in (("s3cret\n", "s3cret"), ("a\r\n", "a"), ("b", "b"), ("c\n\n", "c\n")):
        (tmp_path / "secret").write_bytes(content.encode())
        loaded = load(f"queryflux: {{ adminApi: {{ passwordFile: {tmp_path}/secret }} }}")
        assert loaded.config.queryflux.admin_api.password.reveal() == expected


def test_a_required_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("lovelace\n")
    text = "auth: {provider: static, staticUsers: {users: {ada: {passwordFile: '${DIR}/ada'}}}}"
    users = load(text, {"DIR": str(tmp_path)}).config.auth.static_users.users
    assert users["ada"].password.reveal() == "lovelace"


def test_a_secret_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff")
    (tmp_path / "long").write_bytes(b"x" * (1024 * 1024 + 1))
    for name, words in (
        ("gone", "No such file"),
        ("latin", "not UTF-8"),
        ("long", "larger"),
        ("", "directory"),
    ):
        problem = only(f"queryflux: {{ adminApi: {{ passwordFile: {tmp_path}/{name} }} }}")
        assert problem.path == "queryflux.adminApi.passwordFile"
        assert words in problem.message


def test_a_secret_from_two_places_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for keys in (
        f"password: a, passwordFile: {tmp_path}/secret",
        f"passwordFile: {tmp_path}/secret, password: a",
    ):
        assert "both set" in only(f"queryflux: {{ adminApi: {{ {keys} }} }}").message


def test_a_secret_without_a_value_names_its_file_key() -> None:
    problem = only("auth: { staticUsers: { users: { ada: { groups: [a] } } } }")
    assert problem.path == "auth.staticUsers.users.ada.password"
    assert "passwordFile" in problem.hint


def test_a_mistake_in_one_item_leaves_the_places_of_the_others_right() -> None:
    assert paths("""\
        routers:
          - { type: pythonscript, script: "" }
          - { type: protocolBased, mysqlWire: gone }
          - type: queryRegex
            rules:
              - { regex: 1, action: refuse }
              - { regex: 2, targetGroup: gone }
        """) == [
        "routers[0].type",
        "routers[1].mysqlWire",
        "routers[2].rules[0].action",
        "routers[2].rules[1].targetGroup",
    ]


def test_a_cluster_with_a_mistake_is_not_called_missing_as_well() -> None:
    assert paths("""\
        clusters: { a: { engine: trin } }
        clusterGroups: { g: { members: [a] }, h: { membrs: [a] } }
        routingFallback: h
        """) == ["clusters.a.engine", "clusterGroups.h.members", "clusterGroups.h.membrs"]


def test_snake_case_is_read_with_one_warning_a_key(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("sesame")
    text = f"""\
        queryflux: {{ external_address: "http://x", admin_api: {{ password_file: {tmp_path}/word }} }}
        cluster_groups: {{ pool: {{ members: [], max_running_queries: 3 }} }}
        routing_fallback: pool
        """
    loaded = load(text)
    assert loaded.config.cluster_groups["pool"].max_running_queries == 3
    assert loaded.config.queryflux.external_address == "http://x"
    assert [item for item in warnings(text) if "members" not in item] == [
        "queryflux.external_address",
        "queryflux.admin_api",
        "queryflux.adminApi.password_file",
        "cluster_groups",
        "clusterGroups.pool.max_running_queries",
        "routing_fallback",
    ]


def test_words_in_snake_case_are_read_too() -> None:
    text = """\
        queryflux: { persistence: { type: in_memory } }
        clusterGroups: { pool: { members: [], strategy: { type: least_loaded } } }
        routingFallback: pool
        """
    loaded = load(text)
    assert isinstance(loaded.config.queryflux.persistence, InMemoryPersistence)
    assert [item for item in warnings(text) if "members" not in item] == [
        "queryflux.persistence.type",
        "clusterGroups.pool.strategy.type",
    ]
    assert problems("queryflux: { persistence: { type: in-memory } }")[0].path == "queryflux.persistence.type"


def test_access_control_without_anybody_to_ask_is_told() -> None:
    assert "accessControl.enabled" in warnings("accessControl: { enabled: true }")
    assert "accessControl.enabled" not in warnings("accessControl: { enabled: false }")
    assert "accessControl.enabled" not in warnings("accessControl: {}")


def test_two_spellings_of_one_key_are_refused() -> None:
    assert "both set" in only("routingFallback: ''\nrouting_fallback: ''\n").message


def test_guardrails_are_snake_case_only() -> None:
    text = "guardrails: { global: [{ kind: http_webhook, url: 'http://x', timeoutMs: 3 }] }"
    assert [(item.path, item.hint) for item in problems(text)][-1] == (
        "guardrails.global[0].timeoutMs",
        "did you mean timeout_ms?",
    )


def test_the_environment_wins_over_the_file_for_three_settings() -> None:
    environ = {
        "QUERYFLUX_ADMIN_USER": "root",
        "QUERYFLUX_ADMIN_PASSWORD": "s3cret",
        "QUERYFLUX_INSTANCE_ID": "qf-1",
    }
    text = "queryflux: { adminApi: { username: ada, password: x }, instanceId: qf-0 }"
    process = load(text, environ).config.queryflux
    assert process.admin_api.username == "root"
    assert process.admin_api.password.reveal() == "s3cret"
    assert process.instance_id == "qf-1"
    assert load(text, {"QUERYFLUX_INSTANCE_ID": ""}).config.queryflux.instance_id == "qf-0"
