"""The order of rules, the fallback, the allow-lists, the trace."""

from collections.abc import Mapping

import pytest

from queryflux.auth.groups import may_use_group
from queryflux.config.routers import (
    ProtocolBasedRouter,
    QueryRegexRouter,
    QueryRegexRule,
    Router,
    UserGroupRouter,
)
from queryflux.model.errors import AccessDenied, ConfigError, Unavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.routing.chain import GroupAccess, NoGroup, RouterChain, RoutingDenied, compile_routing
from queryflux.routing.request import RouteRequest

OPEN = GroupAccess()
FOR_BI = GroupAccess(allow_groups=frozenset({"bi"}))
FOR_BOB = GroupAccess(allow_users=frozenset({"bob"}))
CLOSED = GroupAccess(enabled=False)

ANNE = VerifiedIdentity("anne", ("bi",))
BOB = VerifiedIdentity("bob")
EVE = VerifiedIdentity("eve")


def ask(who: VerifiedIdentity = ANNE, text: str = "SELECT 1") -> RouteRequest:
    protocol = ClientProtocol.POSTGRES_WIRE
    return RouteRequest(protocol, who, Session(protocol), text)


def chain(groups: Mapping[str, GroupAccess], *routers: Router, fallback: str = "") -> RouterChain:
    return compile_routing(routers, fallback, groups, may_use=may_use_group)


def test_the_first_rule_that_matches_wins() -> None:
    routing = chain(
        {"a": OPEN, "b": OPEN, "c": OPEN},
        ProtocolBasedRouter(trino_http="a"),
        UserGroupRouter(user_to_group={"anne": "b"}),
        ProtocolBasedRouter(postgres_wire="c"),
    )
    assert routing.route(ask(ANNE)).group == "b"
    route = routing.route(ask(BOB))
    assert route.group == "c"
    assert route.trace.to_dict() == {
        "routers": [
            {"type": "protocolBased", "matched": False},
            {"type": "userGroup", "matched": False},
            {"type": "protocolBased", "matched": True, "detail": "postgresWire", "result": "c"},
        ],
        "used_fallback": False,
        "final_group": "c",
    }


def test_a_denial_before_a_route_denies_and_after_it_does_not() -> None:
    deny = QueryRegexRouter(rules=(QueryRegexRule(regex="secret", action="deny"),))
    route = ProtocolBasedRouter(postgres_wire="a")
    with pytest.raises(AccessDenied):
        chain({"a": OPEN}, deny, route).route(ask(text="select secret"))
    assert chain({"a": OPEN}, route, deny).route(ask(text="select secret")).group == "a"


@pytest.mark.parametrize(
    ("groups", "fallback", "who", "expected"),
    [
        ({"a": OPEN, "b": OPEN}, "b", EVE, "b"),
        ({"a": OPEN, "b": OPEN}, "", EVE, "a"),
        ({"a": FOR_BI, "b": FOR_BOB, "c": OPEN}, "b", ANNE, "a"),
        ({"a": FOR_BI, "b": FOR_BOB, "c": OPEN}, "b", BOB, "b"),
        ({"a": FOR_BI, "b": FOR_BOB, "c": OPEN}, "b", EVE, "c"),
        ({"a": FOR_BI, "b": FOR_BOB, "c": OPEN}, "", BOB, "b"),
        ({"a": CLOSED, "b": OPEN}, "a", EVE, "b"),
    ],
)
def test_the_fallback(
    groups: Mapping[str, GroupAccess], fallback: str, who: VerifiedIdentity, expected: str
) -> None:
    route = chain(groups, fallback=fallback).route(ask(who))
    assert route.group == expected
    assert route.trace.used_fallback
    assert route.trace.to_dict()["final_group"] == expected


def test_nothing_left_to_fall_back_on() -> None:
    with pytest.raises(RoutingDenied, match="may not use any cluster group") as denial:
        chain({"a": FOR_BI, "b": FOR_BOB}, fallback="a").route(ask(EVE))
    assert denial.value.code == "ACCESS_DENIED"
    assert denial.value.trace.to_dict()["skipped_groups"] == [
        {"group": "a", "reason": "not allowed"},
        {"group": "b", "reason": "not allowed"},
    ]
    for groups in ({}, {"a": CLOSED}, {"a": CLOSED, "b": FOR_BI}):
        with pytest.raises(NoGroup, match="no cluster group is enabled") as missing:
            chain(groups).route(ask(EVE))
        assert missing.value.code == "UNAVAILABLE"
        assert "denied" in missing.value.trace.to_dict()


def test_a_routed_group_must_be_allowed_and_enabled() -> None:
    groups = {"a": FOR_BI, "b": CLOSED, "c": OPEN}
    to_a = chain(groups, ProtocolBasedRouter(postgres_wire="a"), fallback="c")
    assert to_a.route(ask(ANNE)).group == "a"
    with pytest.raises(RoutingDenied, match="user 'eve' may not use cluster group 'a'") as denial:
        to_a.route(ask(EVE))
    assert denial.value.trace.to_dict()["denied"] == denial.value.message
    with pytest.raises(Unavailable, match="'b' is disabled"):
        chain(groups, ProtocolBasedRouter(postgres_wire="b"), fallback="c").route(ask(EVE))


def test_a_fallback_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="routingFallback"):
        chain({"a": OPEN}, fallback="b")
