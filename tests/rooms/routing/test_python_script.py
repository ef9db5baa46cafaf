"""Rules that have to be asked: only when the walk comes to them, once, and never on a guess."""

from typing import Any, cast

import pytest

from queryflux.auth.groups import may_use_group
from queryflux.config.routers import PythonRouter, QueryRegexRouter, QueryRegexRule, Router
from queryflux.config.scripts import Script
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.routing.chain import GroupAccess, RouterChain, RoutingDenied, RuleFailed, compile_routing
from queryflux.routing.request import RouteRequest, Unanswered
from queryflux.runtime.clock import SystemClock
from queryflux.scripts.failures import FailureLog
from queryflux.scripts.host import ScriptFailed, ScriptHost
from queryflux.scripts.limits import Text

SCRIPT = PythonRouter(script="...")
DROP = QueryRegexRouter(rules=(QueryRegexRule(regex="drop", action="deny", error="no drop"),))


class Answers:
    """A host whose scripts give what they are told to."""

    def __init__(self, *answers: Any) -> None:
        self.texts = [Text(f"routers[{at}].script", Script("routing", "")) for at in range(len(answers))]
        self.answers = answers
        self.calls: list[tuple[int, Any]] = []
        self.failures = FailureLog(SystemClock())

    async def call(self, script: int, *arguments: Any) -> Any:
        self.calls.append((script, arguments))
        answer = self.answers[script]
        if isinstance(answer, Exception):
            raise answer
        return answer


def chain(host: Answers, *routers: Router) -> RouterChain:
    groups = {"a": GroupAccess(), "b": GroupAccess(), "z": GroupAccess(allow_users=frozenset({"zoe"}))}
    scripts = cast("ScriptHost", host)
    return compile_routing(routers, "a", groups, may_use=may_use_group, scripts=scripts)


def request(text: str = "select 1", **session: Any) -> RouteRequest:
    protocol = ClientProtocol.MYSQL_WIRE
    identity = VerifiedIdentity("ann", ("g",), ("r",))
    return RouteRequest(protocol, identity, Session(protocol, **session), text)


async def test_scripts_are_asked_in_order_until_one_decides() -> None:
    host = Answers(None, "b", "a")
    routing = chain(host, SCRIPT, DROP, SCRIPT, SCRIPT)
    wanted = request()
    with pytest.raises(Unanswered):
        routing.route(wanted)
    await routing.ask(wanted)
    assert [script for script, _ in host.calls] == [0, 1]
    route = routing.route(wanted)
    assert route.group == "b"
    assert [step["matched"] for step in route.trace.to_dict()["routers"]] == [False, False, True]


async def test_a_rule_before_a_script_decides_without_it() -> None:
    host = Answers("b")
    routing = chain(host, DROP, SCRIPT)
    wanted = request("drop table t")
    await routing.ask(wanted)
    assert host.calls == []
    with pytest.raises(RoutingDenied, match="no drop"):
        routing.route(wanted)


async def test_what_a_script_is_told() -> None:
    host = Answers(None)
    routing = chain(host, SCRIPT)
    await routing.ask(request("select 2", database="shop", extra={"sql_mode": "ansi"}, tags={"t": "x"}))
    (_, (query, context)) = host.calls[0]
    assert query == "select 2"
    assert context == {
        "protocol": "mysqlWire",
        "user": "ann",
        "database": "shop",
        "extra": {"sql_mode": "ansi"},
        "auth": {"user": "ann", "groups": ["g"], "roles": ["r"]},
    }


async def test_a_user_who_only_claims_a_name_has_no_auth() -> None:
    host = Answers(None)
    protocol = ClientProtocol.TRINO_HTTP
    claimed = VerifiedIdentity("ann", authenticated=False)
    session = Session(protocol, catalog="lake", database="schema")
    await chain(host, SCRIPT).ask(RouteRequest(protocol, claimed, session, ""))
    context = host.calls[0][1][1]
    assert (context["user"], context["database"], context["auth"]) == ("ann", "lake", None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ScriptFailed("timeout", "secret", brief="too slow"), "too slow"),
        ("", "gave an empty name"),
        (5, "gave int"),
        ("c", "gave 'c', and there is no such cluster group"),
    ],
)
async def test_a_script_that_cannot_decide_is_an_error_and_no_miss(
    answer: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    routing = chain(Answers(answer), SCRIPT)
    wanted = request()
    await routing.ask(wanted)
    with pytest.raises(RuleFailed) as caught:
        routing.route(wanted)
    assert said in caught.value.message
    assert "secret" not in caught.value.message
    assert said in caplog.text
    assert "secret" not in caplog.text
    (step,) = caught.value.trace.to_dict()["routers"]
    assert step["error"]
    assert caught.value.trace.to_dict()["final_group"] is None


async def test_the_group_of_a_script_has_to_be_allowed_too() -> None:
    routing = chain(Answers("z"), SCRIPT)
    wanted = request()
    await routing.ask(wanted)
    with pytest.raises(RoutingDenied, match="may not use"):
        routing.route(wanted)


async def test_a_guess_goes_by_what_was_said_of_another_statement_or_asks_nobody() -> None:
    host = Answers("b")
    routing = chain(host, SCRIPT)
    first = request()
    await routing.ask(first)
    guessed, blind = request("select 2"), request("select 3")
    guessed.guess(first.answers)
    blind.guess({})
    assert routing.route(guessed).group == "b"
    assert routing.route(blind).group == "a"
    assert len(host.calls) == 1


def test_a_chain_without_scripts_asks_nobody() -> None:
    assert not chain(Answers(), DROP).asks
