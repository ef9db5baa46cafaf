"""Who may use the admin API: passwords and where they come from, the default one, guessing, other origins."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from queryflux.config.listeners import AdminApiConfig
from queryflux.config.store import StoredConfig
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.persistence.memory_config import MemoryConfigStore
from tests.kit.operators import FAR, Port, make_port

SET = AdminApiConfig(username="ops", password=Secret("correct horse"))


async def test_without_credentials_there_is_a_challenge(port: Port) -> None:
    ask = port.asker()
    ask.user = None
    reply = await ask("GET", "/admin/config")
    assert (reply.status, reply.json["code"]) == (401, "AUTHENTICATION_FAILED")
    assert reply.headers["www-authenticate"] == 'Basic realm="queryflux", charset="UTF-8"'
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("broken", ["Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Bearer abc", "Basic /w=="])
async def test_credentials_that_cannot_be_read_are_none(port: Port, broken: str) -> None:
    reply = await port.asker()("GET", "/admin/config", headers={"authorization": broken})
    assert reply.status == 401


async def test_name_and_password_must_both_be_right() -> None:
    port = await make_port(SET)
    assert (await port.asker(user="ops", password="correct horse")("GET", "/admin/config")).status == 200
    for user, password in [("ops", "wrong"), ("admin", "correct horse"), ("ops", ""), ("öps", "é")]:
        assert (await port.asker(user=user, password=password)("GET", "/admin/config")).status == 401


async def test_the_default_password_is_for_this_machine_only(port: Port) -> None:
    assert (await port.asker()("GET", "/admin/config")).status == 200
    for peer, headers in [
        (FAR, {}),
        ("2001:db8::1", {}),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}),
        ("127.0.0.1", {"host": "rebound.example:9000"}),
    ]:
        reply = await port.asker(peer=peer)("GET", "/admin/config", headers=headers)
        assert (reply.status, reply.json["code"]) == (403, "DEFAULT_PASSWORD")
        assert "answers only clients on the machine" in reply.json["detail"]
        assert "QUERYFLUX_ADMIN_PASSWORD" in reply.json["hint"]
    for peer in ("127.8.8.8", "::1", "::ffff:127.0.0.1"):
        assert (await port.asker(peer=peer)("GET", "/admin/config")).status == 200


async def test_a_password_of_ones_own_is_for_everywhere() -> None:
    port = await make_port(SET)
    ask = port.asker(user="ops", password="correct horse", peer=FAR)
    assert (await ask("GET", "/admin/config")).status == 200
    assert (await port.asker(user="ops", password="admin", peer=FAR)("GET", "/admin/config")).status == 401


async def test_guessing_gets_slower_and_the_right_password_ends_it() -> None:
    port = await make_port(SET)
    ask = port.asker(user="ops", password="wrong", peer=FAR)
    for _ in range(5):
        assert (await ask("GET", "/admin/config")).status == 401
    ask.password = "correct horse"
    reply = await ask("GET", "/admin/config")
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (429, "TOO_MANY_ATTEMPTS", "1")
    near = port.asker(user="ops", password="correct horse")
    assert (await near("GET", "/admin/config")).status == 200, "others are not held up"
    ask.password = "wrong again"
    for wait in (1, 2, 4, 8, 16, 32, 60, 60):
        assert (await ask("GET", "/admin/config")).status == 429
        await port.clock.advance(wait)
        assert (await ask("GET", "/admin/config")).status == 401
    await port.clock.advance(60)
    ask.password = "correct horse"
    assert (await ask("GET", "/admin/config")).status == 200
    ask.password = "wrong"
    assert (await ask("GET", "/admin/config")).status == 401
    ask.password = "correct horse"
    assert (await ask("GET", "/admin/config")).status == 200


async def test_while_a_peer_waits_even_a_password_that_was_right_a_moment_ago_is_not_looked_at() -> None:
    port = await make_port(SET)
    right = port.asker(user="ops", password="correct horse", peer=FAR)
    wrong = port.asker(user="ops", password="wrong", peer=FAR)
    assert (await right("GET", "/admin/config")).status == 200
    assert [(await wrong("GET", "/admin/config")).status for _ in range(6)] == [401] * 5 + [429]
    assert (await right("GET", "/admin/config")).status == 429
    await port.clock.advance(1)
    assert (await right("GET", "/admin/config")).status == 200


async def test_an_ipv6_client_is_its_network() -> None:
    port = await make_port(SET)
    for last in range(5):
        ask = port.asker(user="ops", password="wrong", peer=f"2001:db8::{last:x}")
        assert (await ask("GET", "/admin/config")).status == 401
    ask = port.asker(user="ops", password="correct horse", peer="2001:db8::99")
    assert (await ask("GET", "/admin/config")).status == 429
    ask.peer = "2001:db8:0:1::99"
    assert (await ask("GET", "/admin/config")).status == 200


async def test_a_changed_password_beats_the_configured_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = await make_port()
    ask = port.asker()
    assert (await ask("GET", "/admin/auth/status")).json == {
        "db_override": False,
        "default_password": True,
        "username": "admin",
        "durable_store": False,
    }
    change = {"current_password": "admin", "new_password": "s3cr3t-9"}
    reply = await ask("POST", "/admin/auth/change-password", change)
    assert (reply.status, reply.json) == (200, {"ok": True})
    assert (await ask("GET", "/admin/auth/status")).status == 401
    far = port.asker(password="s3cr3t-9", peer=FAR)
    status = (await far("GET", "/admin/auth/status")).json
    assert (status["db_override"], status["default_password"]) == (True, False)
    stored = (await port.store.load()).tables.settings["admin_credentials"]
    assert stored["password_hash"].startswith("$2b$12$")
    again = await make_port(SET, port.store)
    assert (await again.asker(password="s3cr3t-9")("GET", "/admin/auth/status")).status == 200
    configured = again.asker(user="ops", password="correct horse")
    assert (await configured("GET", "/admin/auth/status")).status == 401
    said = b"".join([*ask.said, *far.said]).decode() + caplog.text
    assert "s3cr3t" not in said
    assert stored["password_hash"] not in said


async def test_another_process_sees_the_change_within_a_second() -> None:
    one = await make_port()
    other = await make_port(store=one.store)
    assert (await other.asker()("GET", "/admin/auth/status")).status == 200
    change = {"current_password": "admin", "new_password": "s3cr3t-9"}
    await one.asker()("POST", "/admin/auth/change-password", change)
    await other.clock.advance(1)
    assert (await other.asker()("GET", "/admin/auth/status")).status == 401
    assert (await other.asker(password="s3cr3t-9")("GET", "/admin/auth/status")).status == 200


class LostStore(MemoryConfigStore):
    """A store that cannot be reached while ``lost``, and has a bad row while ``broken``."""

    lost = False
    broken = False
    stuck: asyncio.Event | None = None

    async def load(self) -> StoredConfig:
        self._check()
        if self.broken:
            raise ConfigError("a row of the stored configuration is not sound: cluster_configs, 'east'")
        return await super().load()

    async def revision(self) -> tuple[str, int]:
        self._check()
        if self.stuck is not None:
            await self.stuck.wait()
        return await super().revision()

    def _check(self) -> None:
        if self.lost:
            raise StoreUnavailable("cannot connect to the database", hint="10.1.2.3 refuses user qf")


async def test_while_the_store_is_lost_the_password_that_counted_last_counts() -> None:
    store = LostStore()
    port = await make_port(SET, store)
    ask = port.asker(user="ops", password="correct horse")
    assert (await ask("GET", "/admin/clusters")).status == 200
    store.lost = True
    await port.clock.advance(10)
    assert (await ask("GET", "/admin/clusters")).status == 200
    reply = await ask("GET", "/admin/config")
    assert (reply.status, reply.json["code"]) == (503, "STORE_UNAVAILABLE")
    assert (await port.asker(user="ops", password="wrong")("GET", "/admin/clusters")).status == 401


async def test_a_store_that_hangs_does_not_keep_operators_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = LostStore()
    port = await make_port(SET, store)
    ask = port.asker(user="ops", password="correct horse")
    assert (await ask("GET", "/admin/clusters")).status == 200
    monkeypatch.setattr("queryflux.controlplane.login.PATIENCE_SECS", 0.01)
    store.stuck = asyncio.Event()
    await port.clock.advance(10)
    assert (await ask("DELETE", "/admin/queries/q1")).status == 204


async def test_what_is_right_is_known_before_the_first_operator_comes() -> None:
    store = LostStore()
    port = await make_port(SET, store)
    async with port.app.router.lifespan_context(port.app):
        store.lost = True
        ask = port.asker(user="ops", password="correct horse")
        assert (await ask("DELETE", "/admin/queries/q1")).status == 204
        assert (await port.asker(user="ops", password="wrong")("GET", "/admin/clusters")).status == 401


async def test_a_row_that_cannot_be_read_does_not_keep_operators_out() -> None:
    store = LostStore()
    port = await make_port(SET, store)
    ask = port.asker(user="ops", password="correct horse")
    assert (await ask("GET", "/admin/clusters")).status == 200
    stored = await store.load()
    await store.save(stored, replace(stored.tables, settings={"other": 1}))
    store.broken = True
    await port.clock.advance(10)
    assert (await ask("DELETE", "/admin/queries/q1")).status == 204
    assert (await port.asker(user="ops", password="wrong")("GET", "/admin/clusters")).status == 401


async def test_a_process_that_has_not_seen_the_store_yet_lets_nobody_in() -> None:
    """The configured password may have been changed: it must not come back because the store is lost."""
    store = LostStore()
    port = await make_port(SET, store)
    store.lost = True
    reply = await port.asker(user="ops", password="correct horse")("GET", "/admin/clusters")
    assert (reply.status, reply.json["code"]) == (503, "STORE_UNAVAILABLE")
    assert b"10.1.2.3" not in reply.body, "whoever asks may be anybody"


@pytest.mark.parametrize(
    ("current", "new", "path"),
    [
        ("wrong", "long enough", "current_password"),
        ("admin", "short", "new_password"),
        ("admin", "x" * 73, "new_password"),
    ],
)
async def test_a_password_that_will_not_do(port: Port, current: str, new: str, path: str) -> None:
    change = {"current_password": current, "new_password": new}
    reply = await port.asker()("POST", "/admin/auth/change-password", change)
    assert (reply.status, [it["path"] for it in reply.json["problems"]]) == (400, [path])
    assert (await port.asker()("GET", "/admin/auth/status")).json["db_override"] is False


async def test_a_broken_stored_password_opens_nothing() -> None:
    port = await make_port(SET)
    stored = await port.store.load()
    settings = {**stored.tables.settings, "admin_credentials": {"username": "ops"}}
    await port.store.save(stored, replace(stored.tables, settings=settings))
    reply = await port.asker(user="ops", password="correct horse")("GET", "/admin/config")
    assert (reply.status, reply.json["code"]) == (500, "INTERNAL")
    assert "delete its row" in reply.json["hint"]


async def test_an_empty_password_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"queryflux\.adminApi\.password: the password is empty"):
        await make_port(AdminApiConfig(password=Secret("")))


async def test_pages_of_other_origins_need_to_be_named() -> None:
    headers = {"origin": "https://studio.example", "access-control-request-method": "PUT"}
    port = await make_port()
    reply = await port.asker()("GET", "/admin/config", headers={"origin": "https://studio.example"})
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert (await port.asker()("OPTIONS", "/admin/config", headers=headers)).status == 405
    port = await make_port(AdminApiConfig(cors_allowed_origins=("https://studio.example",)))
    ask = port.asker()
    ask.user = None
    reply = await ask("OPTIONS", "/admin/config", headers=headers)
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == "https://studio.example"
    headers["origin"] = "https://evil.example"
    reply = await ask("OPTIONS", "/admin/config", headers=headers)
    assert "access-control-allow-origin" not in reply.headers
