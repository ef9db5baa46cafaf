"""What must hold between sections, for each engine, each listener and each user."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from queryflux.auth.hashes import check_password
from queryflux.config.loader import load_bytes
from queryflux.config.problems import ConfigProblems, Problem
from tests.kit.pki import Authority
from tests.rooms.config.reading import OPEN, SOUND, load, only, paths, problems, told, warnings

CLUSTERS: list[tuple[str, str, str]] = [
    ("engine: trino", "endpoint", "needs endpoint"),
    ("engine: postgres", "endpoint", "needs endpoint"),
    ("engine: trino, endpoint: 'trino:8080'", "endpoint", "expected http"),
    ("engine: trino, endpoint: 'ftp://trino:8080'", "endpoint", "expected http"),
    ("engine: trino, endpoint: 'http://trino:99999'", "endpoint", "expected http"),
    ("engine: trino, endpoint: 'http://u:hunter2@trino:1'", "endpoint", "no place for a password"),
    ("engine: trino, endpoint: 'http://trino:1/ui/'", "endpoint", "nothing behind"),
    ("engine: trino, endpoint: 'http://t:1', tls: {}", "tls", "without TLS"),
    ("engine: trino, endpoint: 'https://t:1', tls: { caFile: /no/such }", "tls.caFile", "cannot read"),
    ("engine: trino, endpoint: 'http://t:1', database: x", "database", "engine trino has no database"),
    ("engine: trino, endpoint: 'http://t:1', databasePath: x", "databasePath", "has no databasePath"),
    ("engine: trino, endpoint: 'http://t:1', poolSize: 3", "poolSize", "has no poolSize"),
    ("engine: trino, endpoint: 'http://t:1', region: x", "region", "has no region"),
    ("engine: postgres, endpoint: 'a b'", "endpoint", "expected host:port"),
    ("engine: postgres, endpoint: 'pg:0'", "endpoint", "expected host:port"),
    ("engine: postgres, endpoint: 'pg:70000'", "endpoint", "expected host:port"),
    ("engine: postgres, endpoint: 'mysql://pg'", "endpoint", "expected host:port"),
    ("engine: postgres, endpoint: 'postgres://u:hunter2@pg/db'", "endpoint", "no place for a user"),
    ("engine: postgres, endpoint: 'postgres://pg/db?sslmode=off'", "endpoint", "options"),
    ("engine: postgres, endpoint: 'postgres://pg/db?a=b'", "endpoint", "options"),
    ("engine: postgres, endpoint: 'postgres://pg?sslmode=disable', tls: {}", "tls", "sslmode=disable"),
    ("engine: postgres, endpoint: 'postgres://pg/db', database: other", "database", "names a database too"),
    ("engine: duckDb, endpoint: 'x:1'", "endpoint", "engine duckDb has no endpoint"),
    ("engine: duckDb, tls: {}", "tls", "has no tls"),
    ("engine: duckDb, auth: { type: basic, username: a, password: b }", "auth", "has no auth"),
    ("engine: duckDb, dataPath: a, databasePath: b", "dataPath", "both set"),
    ("engine: duckDb, readOnly: true", "readOnly", "in memory"),
    ("engine: duckDb, memoryLimit: lots", "memoryLimit", "not a size"),
    ("engine: duckDb, threads: 0", "threads", "at least 1"),
    ("engine: trino, endpoint: 'http://t:1', auth: { type: keyPair }", "auth.type", "no keyPair"),
    ("engine: postgres, endpoint: 'pg', auth: { type: bearer, token: x }", "auth.type", "no bearer"),
    ("engine: trino, endpoint: 'http://t:1', auth: { type: bearer }", "auth.token", "needs token"),
    (
        "engine: trino, endpoint: 'http://t:1', auth: { type: bearer, token: x, username: y }",
        "auth.username",
        "has no username",
    ),
    (
        "engine: postgres, endpoint: 'pg', auth: { type: basic, password: x }",
        "auth.username",
        "needs username",
    ),
]


@pytest.mark.parametrize(("cluster", "path", "words"), CLUSTERS, ids=[row[0] for row in CLUSTERS])
def test_a_cluster_has_what_its_engine_needs_and_nothing_else(cluster: str, path: str, words: str) -> None:
    problem = only(f"clusters: {{ c: {{ {cluster} }} }}")
    assert problem.path == f"clusters.c.{path}"
    assert words in problem.message
    assert "hunter2" not in problem.message + problem.hint


@pytest.mark.parametrize(
    "cluster",
    [
        "engine: trino, endpoint: 'https://t:8443/', tls: { insecureSkipVerify: true }",
        "engine: trino, endpoint: 'http://[::1]:8080', auth: { type: bearer, token: x }",
        "engine: trino, endpoint: 'http://t', auth: { type: basic, username: x, password: '' }",
        "engine: postgres, endpoint: 'pg'",
        "engine: postgres, endpoint: '[::1]:5432', database: d, poolSize: 3",
        "engine: postgres, endpoint: 'postgresql://pg:5/db', auth: { type: basic, username: a, password: b }",
        "engine: postgres, endpoint: 'postgres://pg/db?sslmode=require'",
        "engine: postgres, endpoint: 'pg:5432', tls: { serverName: x }, maxRunningQueries: 0",
        "engine: duckDb",
        "engine: duckDb, databasePath: x.duckdb, readOnly: true, memoryLimit: 512 MiB, threads: 2",
        "engine: duckDb, dataPath: data, memoryLimit: 1.5gb",
    ],
)
def test_a_cluster_that_is_right_loads(cluster: str) -> None:
    assert load(f"clusters: {{ c: {{ {cluster} }} }}").config.clusters["c"]


def test_a_key_of_another_engine_names_that_engine() -> None:
    assert "trino or postgres" in only("clusters: { c: { engine: duckDb, endpoint: 'x' } }").hint


def test_members_exist_once_each_under_names_that_can_be_used() -> None:
    assert paths("""\
        clusters: { a: { engine: duckDb }, "a::b": { engine: duckDb }, " ": { engine: duckDb } }
        clusterGroups: { g: { members: [a, b, a] } }
        routingFallback: g
        """) == ["clusters.a::b", 'clusters." "', "clusterGroups.g.members[1]", "clusterGroups.g.members[2]"]


def test_rules_lead_to_groups_that_exist() -> None:
    found = problems(
        SOUND
        + """
routers:
  - { type: protocolBased, trinoHttp: pool, mcp: a }
  - { type: header, headerName: x, headerValueToGroup: { v: b, w: pool } }
  - { type: userGroup, userToGroup: { ada: c } }
  - type: queryRegex
    rules:
      - { regex: x, targetGroup: d }
      - { regex: x }
      - { regex: x, action: deny, error: no }
  - type: tags
    rules: [{ tags: { k: }, targetGroup: e }, { tags: {}, targetGroup: pool }]
  - { type: compound, combine: any, conditions: [{ type: user, username: a }], targetGroup: f }
  - { type: compound, combine: all, conditions: [], targetGroup: pool }
"""
    )
    assert [item.path for item in found] == [
        "routers[0].mcp",
        "routers[1].headerValueToGroup.v",
        "routers[2].userToGroup.ada",
        "routers[3].rules[0].targetGroup",
        "routers[3].rules[1].targetGroup",
        "routers[4].rules[0].targetGroup",
        "routers[4].rules[1].tags",
        "routers[5].targetGroup",
        "routers[6].conditions",
    ]


def test_a_fallback_may_be_empty_but_must_exist() -> None:
    assert only(SOUND.replace("Fallback: pool", "Fallback: pol")).hint == "did you mean pool?"
    assert warnings(SOUND.replace("Fallback: pool", "Fallback:")) == ["routingFallback"]


def test_what_a_rule_has_no_use_for_is_told() -> None:
    assert warnings(
        SOUND
        + """
routers:
  - type: queryRegex
    rules:
      - { regex: x, action: deny, targetGroup: pool }
      - { regex: x, targetGroup: pool, error: never shown }
"""
    ) == ["routers[0].rules[0].targetGroup", "routers[0].rules[1].error"]


def test_patterns_and_passwords_are_checked_by_those_who_know() -> None:
    text = (
        SOUND
        + """
routers:
  - { type: queryRegex, rules: [{ regex: "(", targetGroup: pool }, { regex: ok, targetGroup: pool }] }
  - type: compound
    combine: all
    conditions: [{ type: user, username: a }, { type: queryRegex, regex: "(" }]
    targetGroup: pool
auth: { provider: static, staticUsers: { users: { ada: { password: "$2b$cut" }, bob: { password: "" } } } }
"""
    )
    with pytest.raises(ConfigProblems) as caught:
        load_bytes(
            text.encode(),
            {},
            lambda pattern: "missing )" if pattern == "(" else None,
            lambda password: "a bcrypt hash is longer" if password == "$2b$cut" else None,
        )
    assert [item.path for item in caught.value.problems] == [
        "routers[0].rules[0].regex",
        "routers[1].conditions[1].regex",
        "auth.staticUsers.users.ada.password",
        "auth.staticUsers.users.bob.password",
    ]
    assert "missing )" in caught.value.problems[0].message


DOORS = "queryflux: { frontends: { trinoHttp: { enabled: false }, %s } }\n"
USER = 'auth: { provider: static, staticUsers: { users: { ada: { password: "%s" } } } %s }\n'
BCRYPT = "$2b$12$" + "a" * 53
SCRAM = "SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy"
SHA2 = "$A$005$" + "s" * 63


@pytest.mark.parametrize("stored", [BCRYPT, SHA2, "0x244124"])
def test_what_cannot_do_scram_needs_tls_where_postgresql_is_the_only_door(stored: str) -> None:
    problem = only(DOORS % "postgresWire: { port: 1 }" + USER % (stored, ""))
    assert problem.path == "auth.staticUsers.users.ada.password"
    assert "postgresWire has no TLS" in problem.message
    assert stored not in problem.message
    both = DOORS % "postgresWire: { port: 1 }, mysqlWire: { port: 2 }"
    if stored == BCRYPT:
        assert only(both + USER % (stored, "")) == problem
    else:  # a hash that was made for MySQL: its user is only warned
        assert warnings(both + USER % (stored, "")) == [problem.path]
    assert not warnings(DOORS % "mysqlWire: { port: 2 }" + USER % (stored, ""))


def test_a_scram_verifier_does_at_both_password_doors() -> None:
    assert not warnings(DOORS % "postgresWire: { port: 1 }, mysqlWire: { port: 2 }" + USER % (SCRAM, ""))


def test_a_bcrypt_user_is_let_through_where_nothing_is_sent_in_clear(tmp_path: Path) -> None:
    made = Authority(tmp_path).server()
    tls = f"tls: {{ certFile: {made.cert_file}, keyFile: {made.key_file} }}"
    for doors in (
        f"postgresWire: {{ port: 1, {tls} }}",
        "postgresWire: { port: 1, enabled: false }, flightSql: { port: 2 }",
    ):
        assert load(DOORS % doors + USER % (BCRYPT, ""))
    assert load(DOORS % "postgresWire: { port: 1 }" + USER % (BCRYPT, ", allowPlaintextCredentials: true"))


def test_a_key_belongs_to_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made, other = authority.server(), authority.server(stem="other")
    text = "queryflux: {{ frontends: {{ mysqlWire: {{ port: 1, tls: {{ certFile: {}, keyFile: {} }} }} }} }}"
    assert not problems(text.format(made.cert_file, made.key_file))
    mixed = only(text.format(made.cert_file, other.key_file))
    assert mixed.path == "queryflux.frontends.mysqlWire.tls.keyFile"
    assert "does not belong to the certificate" in mixed.message
    no_key = only(text.format(made.cert_file, made.cert_file))
    assert no_key.path.endswith("tls.keyFile")
    assert "no private key" in no_key.message
    no_certificate = only(text.format(made.key_file, made.key_file))
    assert no_certificate.path.endswith("tls.certFile")
    assert "no certificate" in no_certificate.message


def test_a_key_with_a_passphrase_is_refused_and_asks_nobody(tmp_path: Path) -> None:
    made = Authority(tmp_path).server()
    key = serialization.load_pem_private_key(made.key_file.read_bytes(), None)
    made.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    tls = f"certFile: {made.cert_file}, keyFile: {made.key_file}"
    text = f"queryflux: {{ adminApi: {{ tls: {{ {tls} }} }} }}"
    assert "without a passphrase" in only(text).message


def test_a_data_path_that_is_no_folder_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    text = "clusters: {{ c: {{ engine: duckDb, dataPath: {} }} }}"
    assert not warnings(text.format(tmp_path))
    for name in (file, tmp_path / "none", '"a\\0b"'):
        assert warnings(text.format(name)) == ["clusters.c.dataPath"]


def test_nothing_to_query_is_told() -> None:
    for text in ("", "queryflux: {}", "clusters: { d: { engine: duckDb } }"):
        (warning,) = told(text)
        assert warning.path == "clusterGroups"
        assert "nothing can be queried" in warning.message


def test_a_misspelt_section_is_all_that_is_said() -> None:
    for text in ("cluster: {}", "clusterGroup: {}", "queryfux: {}"):
        with pytest.raises(ConfigProblems) as caught:
            load(text)
        assert len(caught.value.problems) == 1
        assert "clusterGroups" not in [it.path for it in caught.value.warnings]
    with pytest.raises(ConfigProblems) as caught:
        load("queryflux: { rol: worker }")
    assert "clusterGroups" in [it.path for it in caught.value.warnings]


def test_open_doors_without_authentication_are_told_once() -> None:
    doors = "trinoHttp: { port: 1 }, mysqlWire: { host: 127.0.0.1, port: 2 }, "
    doors += "postgresWire: { host: '%s', port: 3 }"
    text = f"queryflux: {{ frontends: {{ {doors} }} }}\n" + SOUND
    for host in ("0.0.0.0", "::", "", "10.1.2.3", "queryflux.internal"):
        (warning,) = load(text % host).warnings
        assert warning.path == "auth.provider"
        listeners = "queryflux.frontends.trinoHttp, queryflux.frontends.postgresWire"
        assert warning.message == OPEN + listeners
        assert "127.0.0.1" in warning.hint
    here = (text % "localhost").replace("{ port: 1 }", "{ host: '::1', port: 1 }")
    assert not load(here).warnings
    shut = here.replace("host: '::1', port: 1", "enabled: false")
    assert not load(shut).warnings


def test_where_a_database_may_ask_for_passwords_the_file_is_not_the_last_word() -> None:
    door = "queryflux: { frontends: { trinoHttp: { port: 1 } }, persistence: { type: %s } }\n" + SOUND
    (here,) = load(door % "inMemory").warnings
    (stored,) = load(door % "sqlite, path: qf.db").warnings
    assert "database" not in here.message
    assert stored.message == here.message + ", unless auth is stored in the database"


def test_who_is_asked_for_a_password_is_no_news() -> None:
    user = "auth: { provider: static, required: true, staticUsers: { users: { ada: { password: x } } } }\n"
    doors = "queryflux: { frontends: { trinoHttp: { enabled: false }, postgresWire: { port: 3 } } }\n"
    assert not load(doors + user + SOUND).warnings


def test_a_control_character_in_a_pattern_is_told() -> None:
    text = "routers: [{ type: queryRegex, rules: [{ regex: %s, targetGroup: pool }] }]\n" + SOUND
    (warning,) = told(text % r'"(?i)\borders\b"')
    assert warning.path == "routers[0].rules[0].regex"
    assert "control character" in warning.message
    assert "single quotes" in warning.hint
    for written in (r"'(?i)\borders\b'", r'"(?i)\\borders"', r'"a\tb\n"'):
        assert not told(text % written)
    compound = (
        "{ type: compound, combine: all, targetGroup: pool, conditions: [{ type: queryRegex, regex: %s }] }"
    )
    (warning,) = told(f"routers: [{compound}]\n" % r'"\bx"' + SOUND)
    assert warning.path == "routers[0].conditions[0].regex"


def test_a_read_only_database_that_is_not_there_is_told(tmp_path: Path) -> None:
    text = "clusters: {{ c: {{ engine: duckDb, databasePath: {}, readOnly: {} }} }}"
    missing, there = tmp_path / "none.duckdb", tmp_path / "there.duckdb"
    there.touch()
    assert warnings(text.format(missing, "true")) == ["clusters.c.databasePath"]
    assert not warnings(text.format(missing, "false"))  # it is made
    assert not warnings(text.format(there, "true"))
    assert warnings(text.format("'C:none'", "true")) == ["clusters.c.databasePath"]
    for elsewhere in ("md:sales", "s3://bucket/x.duckdb", "https://host/x.duckdb", "ducklake:x"):
        assert not warnings(text.format(f"'{elsewhere}'", "true")), elsewhere


def test_access_and_routing_name_users_that_exist() -> None:
    text = """
clusters: { d: { engine: duckDb } }
clusterGroups: { g: { members: [d], authorization: { allowGroups: [staff, shop], allowUsers: [ada, bob] } } }
routers: [{ type: userGroup, userToGroup: { ada: g, adda: g } }]
routingFallback: g
"""
    users = (
        'auth: {{ provider: {}, staticUsers: {{ users: {{ ada: {{ password: "x", groups: [staff] }} }} }} }}'
    )
    door = "queryflux: { frontends: { trinoHttp: { enabled: false }, mysqlWire: { port: 1 } } }\n"
    loaded = load(door + text + users.format("static"))
    assert [(item.path, item.hint) for item in loaded.warnings] == [
        ("clusterGroups.g.authorization.allowGroups[1]", "groups: staff"),
        ("clusterGroups.g.authorization.allowUsers[1]", "users: ada"),
        ("routers[0].userToGroup.adda", "did you mean ada?"),
    ]
    assert warnings(door + text + users.format("none")) == ["auth.staticUsers"]


def test_a_password_file_that_is_not_there_is_one_problem() -> None:
    auth = "{ type: basic, username: u, passwordFile: /no/such }"
    found = only(f"clusters: {{ t: {{ engine: trino, endpoint: 'http://t:1', auth: {auth} }} }}")
    assert found.path == "clusters.t.auth.passwordFile"


def test_doors_whose_clients_send_passwords_in_clear_warn() -> None:
    doors = "queryflux: { frontends: { flightSql: { port: 3 }, trinoHttp: { port: 4 } } }\n"
    assert warnings(doors + USER % ("x", "")) == [
        "queryflux.frontends.flightSql",
        "queryflux.frontends.trinoHttp",
    ]


def test_users_without_a_provider_are_told() -> None:
    assert warnings("auth: { staticUsers: { users: { ada: { password: x } } } }") == ["auth.staticUsers"]


def test_required_with_nobody_to_satisfy_it_is_refused() -> None:
    assert paths("auth: { required: true }") == ["auth.required"]
    assert paths("auth: { required: true, provider: static }") == ["auth.required"]
    assert paths("auth: { required: true, provider: nobody }") == ["auth.provider"]
    assert not problems(USER % ("x", ", required: true"))
    oidc = "auth: { required: true, provider: oidc, oidc: { issuer: ' ', jwksUri: a } }"
    assert {"auth.oidc.issuer", "auth.oidc.audience"} <= set(paths(oidc))
    assert "auth.oidc.jwksUri" not in paths(oidc)


@pytest.mark.parametrize(
    ("ldap", "path"),
    [
        ("url: '', userSearchBase: b", "auth.ldap.url"),
        ("url: a, userSearchBase: ''", "auth.ldap.userSearchBase"),
        ("url: a, userSearchBase: b, userSearchFilter: ' '", "auth.ldap.userSearchFilter"),
        ("url: a, userSearchBase: '', userDnTemplate: cn=x", "auth.ldap.userDnTemplate"),
    ],
)
def test_required_with_a_directory_that_cannot_work_is_refused(ldap: str, path: str) -> None:
    assert path in paths(f"auth: {{ required: true, provider: ldap, ldap: {{ {ldap} }} }}")


def test_ports_are_distinct_unless_they_are_free_ones() -> None:
    assert paths("""\
        queryflux:
          frontends: { postgresWire: { port: 8080 }, mysqlWire: { port: 9000 } }
          adminApi: {}
        """) == ["queryflux.frontends.postgresWire.port", "queryflux.adminApi.port"]
    assert not problems("queryflux: { frontends: { postgresWire: { port: 0 }, mysqlWire: { port: 0 } } }")
    assert not problems("queryflux: { frontends: { postgresWire: { port: 8080, enabled: false } } }")
    apart = "queryflux: { frontends: { trinoHttp: { host: 127.0.0.1, port: 8 }, %s } }"
    assert not problems(apart % "mysqlWire: { host: 127.0.0.2, port: 8 }")
    assert problems(apart % "mysqlWire: { host: '::', port: 8 }")


def test_an_open_door_needs_a_port() -> None:
    assert paths("queryflux: { frontends: { postgresWire: {} } }") == [
        "queryflux.frontends.postgresWire.port"
    ]
    assert not problems("queryflux: { frontends: { postgresWire: { enabled: false } } }")


def test_tls_files_must_be_readable() -> None:
    tls = "tls: { certFile: /no/cert, keyFile: /no/key }"
    text = f"queryflux: {{ frontends: {{ mysqlWire: {{ port: 1, {tls} }} }}, adminApi: {{ {tls} }} }}"
    assert paths(text) == [
        "queryflux.frontends.mysqlWire.tls.certFile",
        "queryflux.frontends.mysqlWire.tls.keyFile",
        "queryflux.adminApi.tls.certFile",
        "queryflux.adminApi.tls.keyFile",
    ]


def test_a_file_name_that_cannot_be_one_is_told() -> None:
    text = 'clusters: { c: { engine: trino, endpoint: "https://t:1", tls: { caFile: "a\\0b" } } }'
    assert "cannot read" in only(text).message


def test_no_open_door_is_told() -> None:
    assert warnings("queryflux: { frontends: { trinoHttp: { enabled: false } } }") == ["queryflux.frontends"]


def test_what_was_always_read_in_a_special_way() -> None:
    group = load("clusterGroups: { g: { members: [], capacityWaitTimeoutSecs: 0 } }\nroutingFallback: g")
    assert group.config.cluster_groups["g"].capacity_wait_secs == 300.0
    assert load("translation: { errorOnUnsupported: true }").config.translation.strict
    assert load("translation: { mode: strict, errorOnUnsupported: false }").config.translation.strict
    assert not load("").config.translation.strict


def test_the_operators_password_is_one() -> None:
    for text in ("password: ''", "password: '$2b$99$nonsense'"):
        problem = only_with_passwords(f"queryflux: {{ adminApi: {{ {text} }} }}")
        assert problem.path == "queryflux.adminApi.password"
        assert "nonsense" not in problem.message
    hashed = "$2b$12$" + "a" * 53
    load_bytes(f"queryflux: {{ adminApi: {{ password: '{hashed}' }} }}".encode(), {}, None, check_password)


def only_with_passwords(text: str) -> Problem:
    with pytest.raises(ConfigProblems) as caught:
        load_bytes(text.encode(), {}, None, check_password)
    (problem,) = caught.value.problems
    return problem


def test_retention_without_a_store_is_told() -> None:
    days = "queryflux: {queryHistoryRetentionDays: 7%s}\n"
    key = "queryflux.queryHistoryRetentionDays"
    assert key in warnings(days % "" + SOUND)
    assert key not in warnings(days % ", persistence: {type: sqlite, path: x.db}" + SOUND)


def test_a_process_without_a_door_is_of_use_to_workers_alone() -> None:
    shut = "queryflux: { frontends: { trinoHttp: { enabled: false } }%s }\n" + SOUND
    assert warnings(shut % "") == ["queryflux.frontends"]
    serving = ", workerApi: { enabled: true, secret: 0123456789abcdef }, adminApi: { host: 127.0.0.1 }"
    assert not warnings(shut % serving)
