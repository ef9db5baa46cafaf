"""Each kind of rule by itself."""

from typing import Any

import msgspec
import pytest

from queryflux.auth.groups import may_use_group
from queryflux.config.routers import Router
from queryflux.model.errors import ConfigError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.routing.chain import GroupAccess, RouterChain, RoutingDenied, compile_routing
from queryflux.routing.request import RouteRequest

GROUPS = {name: GroupAccess() for name in ("rest", "a", "b", "c")}


def chain(*routers: dict[str, Any]) -> RouterChain:
    compiled = [msgspec.convert(router, Router) for router in routers]
    return compile_routing(compiled, "rest", GROUPS, may_use=may_use_group)


def ask(
    text: str = "SELECT 1",
    *,
    protocol: ClientProtocol = ClientProtocol.TRINO_HTTP,
    user: str = "anne",
    tags: dict[str, str | None] | None = None,
    extra: dict[str, str] | None = None,
) -> RouteRequest:
    session = Session(protocol, tags=tags or {}, extra=extra or {})
    return RouteRequest(protocol, VerifiedIdentity(user), session, text)


def group(router: dict[str, Any], request: RouteRequest) -> str:
    return chain(router).route(request).group


@pytest.mark.parametrize("protocol", ClientProtocol)
def test_protocol_based(protocol: ClientProtocol) -> None:
    router = {"type": "protocolBased", protocol.value: "a"}
    assert group(router, ask(protocol=protocol)) == "a"
    others = [other for other in ClientProtocol if other is not protocol]
    assert {group(router, ask(protocol=other)) for other in others} == {"rest"}


def test_header_names_in_any_case_and_values_exactly() -> None:
    router = {"type": "header", "headerName": "X-Workload", "headerValueToGroup": {"bi": "a", "ml": "b"}}
    assert group(router, ask(extra={"x-workload": "bi"})) == "a"
    assert group(router, ask(extra={"x-workload": "ml"})) == "b"
    assert group(router, ask(extra={"x-workload": "BI"})) == "rest"
    assert group(router, ask(extra={"x-other": "bi"})) == "rest"


@pytest.mark.parametrize("protocol", [ClientProtocol.POSTGRES_WIRE, ClientProtocol.MYSQL_WIRE])
def test_a_start_up_parameter_is_no_header(protocol: ClientProtocol) -> None:
    router = {"type": "header", "headerName": "x-workload", "headerValueToGroup": {"bi": "a"}}
    assert group(router, ask(protocol=protocol, extra={"x-workload": "bi"})) == "rest"


def test_user_group_reads_the_verified_name() -> None:
    router = {"type": "userGroup", "userToGroup": {"anne": "a"}}
    assert group(router, ask()) == "a"
    assert group(router, ask(user="bob", extra={"x-trino-user": "anne", "user": "anne"})) == "rest"


def test_query_regex_first_match_anywhere_in_the_text() -> None:
    router = {
        "type": "queryRegex",
        "rules": [
            {"regex": r"(?i)\bclicks_", "targetGroup": "a"},
            {"regex": r"clicks_old|año", "targetGroup": "b"},
            {"regex": r"^\s*SHOW\b", "targetGroup": "c", "action": "route"},
        ],
    }
    assert group(router, ask("select * from Clicks_2024")) == "a"
    assert group(router, ask("select * from clicks_old")) == "a"
    assert group(router, ask('select "año" from t')) == "b"
    assert group(router, ask("  \n SHOW TABLES")) == "c"
    assert group(router, ask("select 1 -- SHOW")) == "rest"
    assert group(router, ask("\ud800 año")) == "b"


def test_query_regex_denies_with_its_message() -> None:
    router = {
        "type": "queryRegex",
        "rules": [
            {"regex": r"(?i)^\s*drop\s", "action": "deny", "error": "DDL is not available here"},
            {"regex": r"(?i)^\s*grant\s", "action": "deny", "targetGroup": "a"},
        ],
    }
    with pytest.raises(RoutingDenied, match="DDL is not available here") as denial:
        chain(router).route(ask("Drop table t"))
    assert denial.value.trace.to_dict() == {
        "routers": [
            {
                "type": "queryRegex",
                "matched": True,
                "detail": "rules[0]",
                "denied": "DDL is not available here",
            }
        ],
        "used_fallback": False,
        "final_group": None,
        "denied": "DDL is not available here",
    }
    with pytest.raises(RoutingDenied, match="not allowed"):
        chain(router).route(ask("GRANT ALL"))
    assert group(router, ask("select 'drop '")) == "rest"


def test_tags_all_of_a_rule_and_the_first_rule() -> None:
    router = {
        "type": "tags",
        "rules": [
            {"tags": {"dept": "finance", "tier": "gold"}, "targetGroup": "a"},
            {"tags": {"nightly": None}, "targetGroup": "b"},
        ],
    }
    assert group(router, ask(tags={"dept": "finance", "tier": "gold", "nightly": None})) == "a"
    assert group(router, ask(tags={"dept": "finance"})) == "rest"
    assert group(router, ask(tags={"dept": "finance", "tier": None})) == "rest"
    assert group(router, ask(tags={"nightly": None})) == "b"
    assert group(router, ask(tags={"nightly": "yes"})) == "b"
    assert group(router, ask()) == "rest"


CONDITIONS = [
    ({"type": "protocol", "protocol": "trinoHttp"}, ask(), ask(protocol=ClientProtocol.MCP)),
    (
        {"type": "header", "headerName": "X-A", "headerValue": "1"},
        ask(extra={"x-a": "1"}),
        ask(extra={"x-a": "2"}),
    ),
    ({"type": "user", "username": "anne"}, ask(), ask(user="Anne")),
    (
        {"type": "clientTag", "tag": "urgent"},
        ask(extra={"x-trino-client-tags": "slow, urgent,x"}),
        ask(extra={"x-trino-client-tags": "urgently"}),
    ),
    ({"type": "queryRegex", "regex": "(?i)select"}, ask(), ask("SHOW TABLES")),
]


@pytest.mark.parametrize(("condition", "yes", "no"), CONDITIONS)
@pytest.mark.parametrize("combine", ["all", "any"])
def test_each_condition(condition: dict[str, Any], yes: RouteRequest, no: RouteRequest, combine: str) -> None:
    router = {"type": "compound", "combine": combine, "conditions": [condition], "targetGroup": "a"}
    assert group(router, yes) == "a"
    assert group(router, no) == "rest"


@pytest.mark.parametrize(
    ("combine", "user", "text", "expected"),
    [
        ("all", "anne", "urgent", "a"),
        ("all", "anne", "calm", "rest"),
        ("all", "bob", "urgent", "rest"),
        ("any", "anne", "calm", "a"),
        ("any", "bob", "urgent", "a"),
        ("any", "bob", "calm", "rest"),
    ],
)
def test_conditions_together(combine: str, user: str, text: str, expected: str) -> None:
    conditions = [{"type": "user", "username": "anne"}, {"type": "queryRegex", "regex": "urgent"}]
    router = {"type": "compound", "combine": combine, "conditions": conditions, "targetGroup": "a"}
    assert group(router, ask(text, user=user)) == expected


@pytest.mark.parametrize(
    ("router", "says"),
    [
        ({"type": "protocolBased", "mcp": "nowhere"}, "nowhere"),
        ({"type": "header", "headerName": "x", "headerValueToGroup": {"v": "nowhere"}}, "nowhere"),
        ({"type": "userGroup", "userToGroup": {"anne": "nowhere"}}, "nowhere"),
        ({"type": "queryRegex", "rules": [{"regex": "x", "targetGroup": "nowhere"}]}, "nowhere"),
        ({"type": "queryRegex", "rules": [{"regex": "x"}]}, "targetGroup"),
        ({"type": "queryRegex", "rules": [{"regex": "(x", "targetGroup": "a"}]}, "missing"),
        ({"type": "tags", "rules": [{"tags": {}, "targetGroup": "nowhere"}]}, "nowhere"),
        ({"type": "compound", "combine": "all", "conditions": [], "targetGroup": "a"}, "no conditions"),
        (
            {
                "type": "compound",
                "combine": "all",
                "conditions": [{"type": "queryRegex", "regex": "(?=x)"}],
                "targetGroup": "a",
            },
            "invalid perl operator",
        ),
        ({"type": "pythonScript", "script": "def route(q, c): return 'a'"}, "not supported"),
    ],
)
def test_a_router_that_cannot_be_compiled(router: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        chain({"type": "protocolBased"}, router)
    assert refusal.value.message.startswith(f"routers[1] ({router['type']})")
