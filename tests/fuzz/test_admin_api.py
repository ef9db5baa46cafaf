"""Whatever JSON an operator sends, the answer is one of the API's own: never a fault of ours."""

import asyncio
import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.operators import make_port

WORDS = st.sampled_from(
    [
        "<secret>",
        "bi",
        "east",
        "files",
        "trino",
        "duckDb",
        "userGroup",
        "${HOME}",
        "",
        "a::b",
        "null",
        "\x00",
        "é",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/admin/config/clusters/east"): {
        "engineKey": "trino",
        "maxRunningQueries": 1,
        "config": {"endpoint": "https://t:1", "auth": {"type": "bearer", "token": "x"}},
        "variants": [{"name": "v", "overrides": {"password": "x"}}],
    },
    ("PATCH", "/admin/config/clusters/east"): {"enabled": True, "config": {"tls": {}}, "newName": "west"},
    ("PUT", "/admin/config/groups/night"): {"members": ["east"], "strategy": {"type": "failover"}},
    ("PATCH", "/admin/config/groups/bi"): {"members": ["east"], "defaultTags": {"a": "b"}, "newName": "x"},
    ("PUT", "/admin/config/routing"): {
        "routingFallback": "bi",
        "routers": [{"type": "queryRegex", "rules": [{"regex": "a", "targetGroup": "bi"}]}],
    },
    ("PUT", "/admin/config/settings/auth"): {"staticUsers": {"users": {"ann": {"password": "x"}}}},
    ("PATCH", "/admin/config/settings/guardrails"): {"global": [], "groups": {"bi": []}},
    ("PUT", "/admin/config"): {
        "document": {"clusters": {"east": {"engine": "duckDb"}}, "clusterGroups": {"bi": {"members": []}}},
        "expectedSequence": 1,
    },
    ("POST", "/admin/config/clusters/test"): {"engineKey": "trino", "config": {"endpoint": "http://t:1"}},
    ("PATCH", "/admin/clusters/bi/east"): {"enabled": True, "max_running_queries": 3},
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, Any]:
    """One of BODIES with something else in one or two places."""
    (method, path), body = draw(st.sampled_from(list(BODIES.items())))
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 2))):
        body = draw(mutated(body))
    return method, path, body


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    if not keys or draw(st.integers(0, 3)) == 0:
        return draw(VALUES)
    result = copy.copy(value)
    key = draw(st.sampled_from(keys))
    result[key] = draw(mutated(value[key]))
    if isinstance(result, dict) and draw(st.booleans()):
        result[draw(WORDS)] = draw(VALUES)
    return result


@given(st.lists(requests(), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_no_body_is_a_fault_of_ours(sent: list[tuple[str, str, Any]]) -> None:
    async def run() -> None:
        port = await make_port()
        ask = port.asker()
        for method, path, body in sent:
            reply = await ask(method, path, raw=json.dumps(body).encode())
            assert reply.status in (200, 204, 400, 404, 409), reply.body
            assert b"s3cr3t" not in reply.body
        reply = await ask("GET", "/admin/config")
        assert reply.status == 200
        again = await ask("PUT", "/admin/config", {"document": reply.json["document"]})
        assert (again.status, again.json["changes"]) == (200, []), "what is read can be put back"

    asyncio.run(run())
