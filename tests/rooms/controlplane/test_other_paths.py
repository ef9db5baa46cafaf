"""What other versions of the API call by other names: the fallback by id, settings under their own paths."""

from urllib.parse import unquote

import pytest

from queryflux.config.masking import MARKER
from tests.kit.operators import Asker, Port

ROUTING = "/admin/config/routing"
SECURITY = "/admin/config/security"


@pytest.fixture
def ask(port: Port) -> Asker:
    return port.asker()


async def test_the_fallback_by_id_wins_over_its_name(ask: Asker) -> None:
    ids = {it["name"]: it["id"] for it in (await ask("GET", "/admin/config/groups")).json}
    assert sorted(ids) == ["bi", "spare"]
    routing = (await ask("GET", ROUTING)).json
    assert (routing["routingFallback"], routing["routingFallbackGroupId"]) == ("bi", ids["bi"])
    assert (await ask("PUT", ROUTING, routing)).status == 204
    assert (await ask("PUT", ROUTING, {**routing, "routingFallbackGroupId": ids["spare"]})).status == 204
    after = (await ask("GET", ROUTING)).json
    assert (after["routingFallback"], after["routingFallbackGroupId"]) == ("spare", ids["spare"])
    assert after["routers"] == routing["routers"]
    reply = await ask("PUT", ROUTING, {**after, "routingFallback": "bi"})
    assert (reply.status, (await ask("GET", ROUTING)).json) == (204, after)
    assert "the group is spare by its id, and not bi" in unquote(reply.headers["x-queryflux-note"])
    only = {"routers": [], "routingFallbackGroupId": ids["bi"]}
    assert (await ask("PUT", ROUTING, only)).status == 204
    assert (await ask("GET", ROUTING)).json["routingFallback"] == "bi"
    assert (await ask("PUT", ROUTING, {**only, "routingFallbackGroupId": None})).status == 204
    assert (await ask("GET", ROUTING)).json["routingFallback"] == "bi"
    assert (await ask("PUT", ROUTING, {"routers": [], "routingFallback": ""})).status == 204
    assert (await ask("GET", ROUTING)).json["routingFallbackGroupId"] is None


async def test_an_id_of_no_group_is_refused(ask: Asker) -> None:
    reply = await ask("PUT", ROUTING, {"routers": [], "routingFallbackGroupId": 4711})
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert reply.json["problems"][0]["path"] == "routingFallbackGroupId"


async def test_a_new_group_says_its_id_at_once(ask: Asker) -> None:
    made = (await ask("PUT", "/admin/config/groups/new", {"members": ["east"]})).json
    assert made["id"] == (await ask("GET", "/admin/config/groups/new")).json["id"]
    assert (await ask("PUT", "/admin/config/groups/new", {**made, "maxQueuedQueries": 1})).json == {
        **made,
        "maxQueuedQueries": 1,
    }


async def test_security_is_both_settings_in_one_and_keeps_stored_secrets(ask: Asker, port: Port) -> None:
    users = {"users": {"ann": {"password": "s3cr3t-1"}}}
    body = {"auth_provider": "static", "static_users": users, "authorization_provider": "none"}
    assert (await ask("PUT", SECURITY, body)).status == 204
    shown = (await ask("GET", SECURITY)).json
    assert shown["static_users"]["users"]["ann"]["password"] == MARKER
    assert (await ask("PUT", SECURITY, {**shown, "auth_required": True})).status == 204
    security = (await port.store.load()).tables.security
    assert security["static_users"]["users"]["ann"]["password"] == "s3cr3t-1"
    assert (await ask("GET", "/admin/config/settings/auth")).json["required"] is True
    reply = await ask("PUT", SECURITY, {"auth_providr": "static"})
    assert (reply.status, reply.json["code"]) == (400, "CONFIG")


@pytest.mark.parametrize(
    ("path", "name", "empty"),
    [
        ("guardrails", "guardrails", {}),
        ("catalog", "catalogProvider", {"type": "null"}),
        ("access-control", "accessControl", {}),
    ],
)
async def test_settings_have_paths_of_their_own(
    ask: Asker, path: str, name: str, empty: dict[str, str]
) -> None:
    path = f"/admin/config/{path}"
    reply = await ask("GET", path)
    assert (reply.status, reply.json) == (200, empty)
    assert (await ask("PUT", path, {"nonsense": 1})).json["problems"][0]["path"].startswith(name)
