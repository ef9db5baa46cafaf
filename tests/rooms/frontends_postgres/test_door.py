"""Start-up, authentication, cancel, limits and endings."""

import asyncio
import base64
import hashlib
import hmac
import ssl
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from queryflux.auth.build import build_authenticator
from queryflux.auth.port import Authenticator
from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.frontends.postgres.outbox import Outbox
from queryflux.model.secret import Secret
from queryflux.runtime.bytestream import ByteStream
from queryflux.wire.postgres.constants import CANCEL_REQUEST, GSSENC_REQUEST, SSL_REQUEST
from tests.kit.pki import Authority
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_postgres.conftest import OpenRoom, until
from tests.rooms.frontends_postgres.raw_client import (
    SYNC,
    TERMINATE,
    RawClient,
    bind,
    execute,
    fields,
    front,
    parse,
    query,
    shown,
    startup,
)


def static(password: str = "secret", **settings: Any) -> Authenticator:
    users = StaticUsers(users={"ann": StaticUser(password=Secret(password))})
    return build_authenticator(AuthConfig(provider="static", static_users=users, **settings))


def request(code: int, body: bytes = b"") -> bytes:
    return struct.pack("!II", len(body) + 8, code) + body


async def refusal(client: RawClient) -> dict[str, str]:
    found = await client.to_the_end()
    assert [kind for kind, _ in found] == ["E"]
    return fields(found[0][1])


async def test_what_a_new_session_is_told(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client(application_name="psql", TimeZone="Europe/Berlin")
    assert client.parameters["server_version"].startswith("16.")
    assert client.parameters["application_name"] == "psql"
    assert client.parameters["TimeZone"] == "Europe/Berlin"
    assert client.parameters["client_encoding"] == "UTF8"
    assert client.parameters["session_authorization"] == "ann"
    assert set(client.parameters) >= {"DateStyle", "IntervalStyle", "integer_datetimes", "is_superuser",
                                      "server_encoding", "standard_conforming_strings"}  # fmt: skip
    assert client.process > 0
    assert len(client.key) == 4


async def test_start_up_parameters_become_the_session(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client(
        database="tpch", options=r"-c search_path=sf1 --work-mem=1MB", query_tags="team:eng,batch"
    )
    await client.ask(query("select 1"))
    session = room.engine.requests[0].session
    assert (session.catalog, session.database) == ("tpch", "sf1")
    assert session.tags == {"team": "eng", "batch": None}
    assert session.extra == {"search_path": "sf1", "work_mem": "1MB", "query_tags": "team:eng,batch"}
    assert session.peer.startswith("127.0.0.1:")
    await client.ask(query("set query_tags = 'x:y'"))
    await client.ask(query("select 1"))
    assert room.engine.requests[1].session.tags == {"x": "y"}


async def test_protocol_3_2_has_long_keys(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client(version=0x30002)
    assert len(client.key) == 32
    assert client.key.startswith(b"test2")


async def test_a_newer_protocol_is_negotiated_down(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.connect()
    body = b"user\0ann\0_pq_.new\0on\0\0"
    client.send(struct.pack("!II", len(body) + 8, 0x3270F) + body)
    kind, body = await client.message()
    assert kind == "v"
    assert body == struct.pack("!II", 0x30002, 1) + b"_pq_.new\0"
    assert (await client.until("Z"))[-1] == ("Z", b"I")


@pytest.mark.parametrize("first", [SSL_REQUEST, GSSENC_REQUEST])
async def test_encryption_that_is_not_there_is_refused_once(open_room: OpenRoom, first: int) -> None:
    room = await open_room()
    client = await room.connect()
    other = SSL_REQUEST + GSSENC_REQUEST - first
    client.send(request(first))
    assert await client.stream.read() == b"N"
    client.send(request(other))
    assert await client.stream.read() == b"N"
    client.send(request(first))
    assert (await refusal(client))["C"] == "08P01"


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (struct.pack("!I", 0), "08P01"),
        (struct.pack("!I", 3), "08P01"),
        (struct.pack("!I", 2**31 - 1), "08P01"),
        (struct.pack("!II", 8, 0x20000), "0A000"),
        (b"GET / HTTP/1.1\r\n\r\n", "08P01"),
        (startup(client_encoding="LATIN1"), "0A000"),
        (startup(TimeZone="Nowhere/Atlantis"), "22023"),
        (startup(replication="true"), "0A000"),
    ],
)
async def test_a_start_up_that_cannot_be(open_room: OpenRoom, data: bytes, state: str) -> None:
    room = await open_room()
    client = await room.connect()
    client.send(data)
    found = await refusal(client)
    assert (found["S"], found["C"]) == ("FATAL", state)
    await room.idle()


async def test_start_up_byte_by_byte(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.connect()
    for index in range(len(data := startup())):
        client.send(data[index : index + 1])
        await asyncio.sleep(0)
    assert (await client.until("Z"))[-1] == ("Z", b"I")


async def test_a_client_that_dawdles_is_cut(open_room: OpenRoom) -> None:
    room = await open_room(door={"handshake_seconds": 0.05})
    client = await room.connect()
    client.send(b"\0\0")
    assert (await refusal(client))["C"] == "57014"
    await room.idle()


async def scram(client: RawClient, password: str) -> list[tuple[str, bytes]]:
    """The client's half of SCRAM-SHA-256 (RFC 7677), and all that comes of it."""
    client.send(startup())
    kind, body = await client.message()
    assert (kind, body) == ("R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0")
    bare = b"n=,r=abc"
    first = b"n,," + bare
    client.send(front("p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first))
    kind, body = await client.message()
    assert (kind, body[:4]) == ("R", struct.pack("!I", 11))
    server = body[4:]
    nonce, salt, rounds = (part[2:] for part in server.split(b","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(rounds))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = b"c=biws,r=" + nonce
    signature = hmac.digest(hashlib.sha256(key).digest(), b",".join([bare, server, without]), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    client.send(front("p", without + b",p=" + proof))
    found = [await client.message()]
    if found[0][0] == "R":
        found += await client.until("Z")
    return found


async def test_scram(open_room: OpenRoom) -> None:
    room = await open_room(auth=static())
    client = await room.connect()
    found = await scram(client, "secret")
    assert found[0][1][:4] == struct.pack("!I", 12)
    assert found[1] == ("R", struct.pack("!I", 0))
    assert (await client.ask(query("select 1")))[-1] == "Z I"


async def test_scram_with_a_wrong_password(open_room: OpenRoom) -> None:
    room = await open_room(auth=static())
    client = await room.connect()
    ((kind, body),) = await scram(client, "wrong")
    assert kind == "E"
    assert fields(body)["C"] == "28P01"
    assert await client.to_the_end() == []
    assert room.bench.metric("queryflux_auth_failures_total", protocol="PostgresWire") == 1
    await room.idle()


@pytest.mark.parametrize(
    "data",
    [query("select 1"), front("p", b"PLAIN\0\0\0\0\0"), front("p", b"x"), SYNC, b"p\xff\xff\xff\xff"],
)
async def test_nothing_runs_before_authentication(open_room: OpenRoom, data: bytes) -> None:
    room = await open_room(auth=static())
    client = await room.connect()
    client.send(startup(), data, query("select 1"))
    assert (await client.message())[0] == "R"
    found = await client.to_the_end()
    assert [kind for kind, _ in found] == ["E"]
    assert room.engine.requests == []
    await room.idle()


async def test_a_password_in_clear_needs_tls_or_leave(open_room: OpenRoom) -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    room = await open_room(auth=static(hashed))
    client = await room.connect()
    client.send(startup())
    found = await refusal(client)
    assert (found["C"], found["H"].partition(":")[0]) == ("28000", "this door has no TLS")
    room = await open_room(auth=static(hashed), door={"tls_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)})
    client = await room.connect()
    client.send(startup())
    assert (await refusal(client))["H"] == "connect with sslmode=require"
    room = await open_room(auth=static(hashed, allow_plaintext_credentials=True))
    client = await room.connect()
    client.send(startup(), front("p", b"secret\0"))
    assert await client.message() == ("R", struct.pack("!I", 3))
    assert (await client.until("Z"))[-1] == ("Z", b"I")
    client = await room.connect()
    client.send(startup(), front("p", b"wrong\0"))
    assert (await client.to_the_end())[-1][0] == "E"


async def test_tls(open_room: OpenRoom, tmp_path: Path) -> None:
    from queryflux.config.listeners import ListenerTls
    from queryflux.frontends.listener import server_context

    authority = Authority(tmp_path)
    certificate = authority.server()
    context = server_context(
        ListenerTls(cert_file=str(certificate.cert_file), key_file=str(certificate.key_file)), ["postgresql"]
    )
    room = await open_room(door={"tls_context": context})
    client = await room.connect()
    client.send(request(SSL_REQUEST))
    assert await client.stream.read() == b"S"
    await client.stream.start_tls(
        ssl.create_default_context(cafile=str(authority.ca_file)),
        server_side=False,
        server_hostname="localhost",
    )
    client.send(startup())
    assert (await client.until("Z"))[-1] == ("Z", b"I")
    assert (await client.ask(query("select 1")))[-1] == "Z I"


async def test_bytes_in_clear_behind_an_ssl_request_are_refused(open_room: OpenRoom, tmp_path: Path) -> None:
    room = await open_room(door={"tls_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)})
    client = await room.connect()
    client.send(request(SSL_REQUEST), startup())
    assert "unencrypted data" in (await refusal(client))["M"]


async def cancel(room: Any, process: int, key: bytes) -> None:
    other = await room.connect()
    other.send(request(CANCEL_REQUEST, struct.pack("!I", process) + key))
    assert await other.stream.read() == b""


@pytest.mark.parametrize("version", [0x30000, 0x30002])
async def test_a_cancel_request_stops_the_query_and_only_with_the_right_key(
    open_room: OpenRoom, version: int
) -> None:
    gate = asyncio.Event()
    room = await open_room(ScriptedEngine(script=lambda _: Step(gate=gate), dialect="postgres"))
    client = await room.client(version=version)
    client.send(query("select 1"))
    await until(lambda: room.engine.running)
    await cancel(room, client.process, bytes(len(client.key)))
    await cancel(room, client.process + 1, client.key)
    assert room.engine.cancels == 0
    await cancel(room, client.process, client.key)
    assert [shown(*message) for message in await client.until("Z")] == ["E 57014", "Z I"]
    gate.set()
    assert (await client.ask(query("select 1")))[-1] == "Z I"
    await cancel(room, client.process, client.key)
    assert (await client.ask(query("select 1")))[-2:] == ["C SELECT 1", "Z I"]


async def test_a_client_that_goes_while_its_query_runs(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedEngine(script=lambda _: Step(gate=asyncio.Event()), dialect="postgres"))
    client = await room.client()
    client.send(query("select 1"))
    await until(lambda: room.engine.running)
    client.close()
    await room.idle()
    assert room.engine.cancels == 1
    assert [record.reason for record in room.bench.records] == ["clientGone"]


async def test_a_client_that_stops_reading_and_goes(open_room: OpenRoom) -> None:
    table = pa.table({"t": ["x" * 10_000] * 5_000})
    engine = ScriptedEngine(script=lambda _: Step(table, rows_per_batch=100), dialect="postgres")
    room = await open_room(engine)
    client = await room.client()
    client.send(query("select 1"))
    await client.message()
    await until(lambda: room.engine.running)
    client.close()
    await room.idle()


@pytest.mark.parametrize("last", [TERMINATE, b""])
async def test_a_client_that_leaves_in_a_transaction(open_room: OpenRoom, last: bytes) -> None:
    room = await open_room()
    client = await room.client()
    await client.ask(query("begin"))
    await client.ask(query("select 1"))
    client.send(last)
    client.stream.close()
    await room.idle()


async def test_a_message_that_cannot_be_ends_the_session(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    client.send(b"\x16\x03\x01\x00\x00")
    found = await refusal(client)
    assert (found["S"], found["C"]) == ("FATAL", "08P01")
    client = await room.client()
    client.send(front("p", b"late\0"))
    assert (await refusal(client))["C"] == "08P01"
    await room.idle()


async def test_too_many_clients(open_room: OpenRoom) -> None:
    gate = asyncio.Event()
    engine = ScriptedEngine(script=lambda _: Step(gate=gate), dialect="postgres")
    room = await open_room(engine, door={"max_connections": 1})
    client = await room.client()
    other = await room.connect()
    other.send(startup())
    found = await refusal(other)
    assert (found["S"], found["C"]) == ("FATAL", "53300")
    client.send(query("select 1"))
    await until(lambda: room.engine.running)
    await cancel(room, client.process, client.key)
    assert [shown(*message) for message in await client.until("Z")] == ["E 57014", "Z I"]


async def test_before_there_is_a_configuration_and_while_draining(open_room: OpenRoom) -> None:
    room = await open_room()
    room.bench.pipeline.begin_drain()
    client = await room.connect()
    client.send(startup())
    found = await refusal(client)
    assert (found["S"], found["C"]) == ("FATAL", "57P03")


async def test_drain_parts_with_idle_clients_and_lets_busy_ones_finish(open_room: OpenRoom) -> None:
    gate = asyncio.Event()
    room = await open_room(ScriptedEngine(script=lambda _: Step(gate=gate), dialect="postgres"))
    idle, busy = await room.client(), await room.client()
    busy.send(query("select 1"))
    await until(lambda: room.engine.running)
    room.door.stop_accepting()
    assert fields((await idle.to_the_end())[0][1])["C"] == "57P01"
    gate.set()
    assert [shown(*message) for message in await busy.to_the_end()] == [
        "T x", "D 1", "C SELECT 1", "Z I", "E 57P01",
    ]  # fmt: skip
    await room.door.close(grace=5)
    await room.idle()


async def test_close_cuts_a_query_that_goes_on(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedEngine(script=lambda _: Step(gate=asyncio.Event()), dialect="postgres"))
    client = await room.client()
    client.send(parse("select 1"), bind(), execute(), SYNC)
    await until(lambda: room.engine.running)
    await room.door.close(grace=0.01)
    await room.idle()
    assert isinstance(client.stream, ByteStream)


async def test_settings_are_kept_reported_and_taken_back(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    assert await client.ask(query("set application_name to 'me'")) == [
        "C SET",
        "S application_name=me",
        "Z I",
    ]
    assert await client.ask(query("show application_name")) == ["T application_name", "D me", "C SHOW", "Z I"]
    assert await client.ask(query("begin; set timezone = 'Europe/Berlin'")) == [
        "C BEGIN", "C SET", "S TimeZone=Europe/Berlin", "Z T",
    ]  # fmt: skip
    assert await client.ask(query("rollback")) == ["C ROLLBACK", "S TimeZone=UTC", "Z I"]
    assert await client.ask(query("set bogus = 1")) == ["E 42704", "Z I"]
    assert await client.ask(query("set client_encoding = latin1")) == ["E 0A000", "Z I"]
    assert await client.ask(query("set server_version = 1")) == ["E 55P02", "Z I"]
    assert await client.ask(query("reset all")) == ["C RESET", "S application_name=", "Z I"]
    assert await client.ask(query("discard all")) == ["C DISCARD ALL", "Z I"]
    assert len(await client.ask(query("show all"))) > 50


async def test_settings_of_a_transaction_whose_commit_fails_are_taken_back(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    await client.ask(query("begin; set timezone = 'Europe/Berlin'; set local application_name = 'me'"))
    await client.ask(query("select 1"))
    room.engine.connections[0].lose()
    found = await client.ask(query("commit"))
    assert found[0].startswith("E ")
    assert sorted(found[1:]) == ["S TimeZone=UTC", "S application_name=", "Z I"]
    await client.ask(query("select 1"))
    assert room.engine.requests[-1].session.extra == {}
    await client.ask(query("begin; set timezone = 'Asia/Tokyo'"))
    assert await client.ask(query("rollback")) == ["C ROLLBACK", "S TimeZone=UTC", "Z I"]


async def test_the_clients_own_statement_timeout(open_room: OpenRoom) -> None:
    gate = asyncio.Event()
    room = await open_room(ScriptedEngine(script=lambda _: Step(gate=gate), dialect="postgres"))
    client = await room.client(options="-c statement_timeout=10ms")
    assert await client.ask(query("select 1")) == ["E 57014", "Z I"]
    assert await client.ask(parse("select 1"), bind(), execute(), SYNC) == ["1", "2", "E 57014", "Z I"]
    assert [record.reason for record in room.bench.records] == ["timedOut", "timedOut"]
    await client.ask(query("set statement_timeout = 0"))
    gate.set()
    assert (await client.ask(query("select 1")))[-2:] == ["C SELECT 1", "Z I"]
    assert await client.ask(query("set statement_timeout = 'soon'")) == ["E 22023", "Z I"]


@pytest.mark.parametrize("extended", [False, True])
async def test_a_client_that_takes_nothing_is_cut_and_its_query_ends(
    open_room: OpenRoom, *, extended: bool
) -> None:
    table = pa.table({"t": ["x" * 10_000] * 5_000})
    engine = ScriptedEngine(script=lambda _: Step(table, rows_per_batch=100), dialect="postgres")
    room = await open_room(engine, door={"stall_seconds": 0.2})
    client = await room.client()
    if extended:
        client.send(parse("select 1"), bind(), execute(limit=10), execute(), SYNC)
    else:
        client.send(query("select 1"))
    await until(lambda: room.engine.requests)
    await room.idle()
    assert [record.reason for record in room.bench.records] == ["clientGone"]


async def test_a_client_that_reads_slowly_but_steadily_is_not_cut() -> None:
    class Slow(ByteStream):
        """Takes a little in each period, and is ready after the fourth."""

        left = 5

        @property
        def unsent(self) -> int:
            self.left -= 1
            return self.left

        async def drain(self) -> None:
            if self.left > 1:
                await asyncio.Event().wait()

    await Outbox(Slow(), stall_seconds=0).drain()
