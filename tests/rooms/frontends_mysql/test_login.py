"""Who gets in, and how; who does not, and that nothing of theirs is run."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import bcrypt
import pymysql
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from queryflux.auth.sha2 import caching_sha2_hash
from queryflux.model.errors import NotConfigured, ShuttingDown
from queryflux.wire.mysql.constants import Capability
from queryflux.wire.mysql.handshake import unmask
from tests.kit.pki import Authority
from tests.rooms.frontends_mysql.fake import House, authenticator, house
from tests.rooms.frontends_mysql.raw import DEFAULT, RawClient, error_number, scramble

BOB = {"bob": "s3cret"}


def query_with_pymysql(port: int, **connect: object) -> object:
    """One row through PyMySQL."""
    connection = pymysql.connect(host="127.0.0.1", port=port, **connect)  # type: ignore[call-overload]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT USER()")
            return cursor.fetchone()
    finally:
        connection.close()


def nothing_ran(place: House) -> bool:
    return not place.pipeline.statements and not place.pipeline.conversations


@pytest.mark.parametrize(
    "stored",
    [
        "s3cret",
        caching_sha2_hash("s3cret"),
        bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode(),
    ],
    ids=["plain", "caching_sha2", "bcrypt"],
)
async def test_a_right_password_in_every_stored_form_without_tls(stored: str) -> None:
    async with house(auth=authenticator({"bob": stored})) as place:
        for _ in range(2):  # the second time the fast path may do
            row = await asyncio.to_thread(query_with_pymysql, place.port, user="bob", password="s3cret")
            assert row == ("bob@127.0.0.1",)


@pytest.mark.parametrize("stored", ["s3cret", caching_sha2_hash("s3cret")], ids=["plain", "caching_sha2"])
@pytest.mark.parametrize("password", ["wrong", "", "s3cret\0"])
async def test_a_wrong_password_is_refused_and_the_connection_closed(stored: str, password: str) -> None:
    async with house(auth=authenticator({"bob": stored})) as place:
        with pytest.raises(pymysql.err.OperationalError) as caught:
            await asyncio.to_thread(query_with_pymysql, place.port, user="bob", password=password)
        assert caught.value.args[0] == 1045
        assert "s3cret" not in str(caught.value)
        assert nothing_ran(place)


async def test_an_unknown_user_is_refused_as_a_wrong_password_is() -> None:
    messages = []
    async with house(auth=authenticator(BOB)) as place:
        for user in ("bob", "eve"):
            async with RawClient(place.port) as client:
                answer = await client.log_in(user, "wrong")
                assert error_number(answer) == 1045
                messages.append(answer.replace(user.encode(), b"*"))
        assert messages[0] == messages[1]


async def test_a_refused_client_that_goes_on_gets_nothing() -> None:
    async with house(auth=authenticator(BOB)) as place:
        async with RawClient(place.port) as client:
            assert error_number(await client.log_in("bob", "wrong")) == 1045
            client.send(b"\x03SELECT 1", 0)
            assert await client.at_end()
        assert nothing_ran(place)


@pytest.mark.parametrize("early", [b"\x03SELECT 1", b"\x01", b"\x19\0\0\0\0", b"\x03SET autocommit=0"])
async def test_a_command_in_place_of_the_response(early: bytes) -> None:
    async with house() as place:
        async with RawClient(place.port) as client:
            await client.greeting()
            client.send(early)
            assert error_number(await client.receive()) == 1835
            assert await client.at_end()
        assert nothing_ran(place)


async def test_a_command_in_place_of_the_proof() -> None:
    async with house(auth=authenticator(BOB)) as place:
        async with RawClient(place.port) as client:
            await client.greeting()
            client.respond("bob", b"x" * 20, plugin="mysql_native_password")
            switch = await client.receive()
            assert switch.startswith(b"\xfecaching_sha2_password\0")
            client.send(b"\x03SELECT 1")
            assert error_number(await client.receive()) == 1045
            assert await client.at_end()
        assert nothing_ran(place)


async def test_a_client_with_another_plugin_is_switched() -> None:
    async with house(auth=authenticator(BOB)) as place, RawClient(place.port) as client:
        await client.greeting()
        client.respond("bob", b"x" * 20, plugin="mysql_native_password")
        switch = await client.receive()
        assert switch[:23] == b"\xfecaching_sha2_password\0"
        nonce = switch[23:43]
        assert switch[43:] == b"\0"
        assert nonce != client.nonce
        client.send(scramble("s3cret", nonce))
        assert await client.receive() == b"\x01\x03"
        assert (await client.receive())[0] == 0


async def test_a_proof_cannot_be_played_again() -> None:
    async with house(auth=authenticator(BOB)) as place:
        async with RawClient(place.port) as client:
            await client.greeting()
            proof = scramble("s3cret", client.nonce)
            client.respond("bob", proof)
            assert await client.receive() == b"\x01\x03"
        async with RawClient(place.port) as client:
            await client.greeting()
            client.respond("bob", proof)
            assert error_number(await client.receive()) == 1045


async def test_the_full_path_without_tls_encrypts_the_password() -> None:
    stored = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    async with house(auth=authenticator({"bob": stored})) as place:
        for password, right in ((b"s3cret\0", True), (b"wrong\0", False)):
            async with RawClient(place.port) as client:
                await client.greeting()
                client.respond("bob", scramble("anything", client.nonce))
                assert await client.receive() == b"\x01\x04"
                client.send(b"\x02")
                pem = await client.receive()
                assert pem.startswith(b"\x01-----BEGIN PUBLIC KEY-----")
                key = serialization.load_pem_public_key(pem[1:])
                assert isinstance(key, rsa.RSAPublicKey)
                oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
                client.send(key.encrypt(unmask(password, client.nonce), oaep))
                answer = await client.receive()
                assert (answer[0] == 0) is right


@pytest.mark.parametrize("answer", [b"s3cret\0", b"x" * 256, b""])
async def test_a_password_in_clear_without_tls_is_refused(answer: bytes) -> None:
    stored = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    async with house(auth=authenticator({"bob": stored})) as place, RawClient(place.port) as client:
        await client.greeting()
        client.respond("bob", scramble("s3cret", client.nonce))
        assert await client.receive() == b"\x01\x04"
        client.send(answer)
        assert error_number(await client.receive()) == 1045
        assert await client.at_end()


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "mysql_clear_password"])
@pytest.mark.parametrize("tls", [False, True])
async def test_the_hint_says_what_can_be_done(tmp_path: Path, plugin: str, tls: bool) -> None:
    context = Authority(tmp_path).server().context() if tls else None
    auth = authenticator({"bob": caching_sha2_hash("s3cret")})
    async with house(auth=auth, tls_context=context) as place, RawClient(place.port) as client:
        await client.greeting()
        is_sha2 = plugin == "caching_sha2_password"
        client.respond("bob", scramble("s3cret", client.nonce) if is_sha2 else b"s3cret\0", plugin=plugin)
        answer = await client.receive()
        if answer == b"\x01\x04":
            client.send(b"s3cret\0")
            answer = await client.receive()
        assert error_number(answer) == 1045
        assert answer.endswith(b" (connect with TLS)") is tls
        assert (b"this door has no TLS: give its listener tls" in answer) is not tls
        assert (b"--skip-ssl" in answer) is (is_sha2 and not tls)


@pytest.mark.parametrize("allowed", [False, True])
async def test_mysql_clear_password_only_where_it_is_allowed(allowed: bool) -> None:
    auth = authenticator(BOB, allow_plaintext_credentials=allowed)
    async with house(auth=auth) as place, RawClient(place.port) as client:
        await client.greeting()
        client.respond("bob", b"s3cret\0", plugin="mysql_clear_password")
        answer = await client.receive()
        assert (answer[0] == 0) is allowed
        if not allowed:
            assert error_number(answer) == 1045
            assert b"TLS" in answer


@pytest.mark.parametrize(
    "stored", ["s3cret", bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()], ids=["plain", "bcrypt"]
)
async def test_the_same_over_tls(tmp_path: Path, stored: str) -> None:
    authority = Authority(tmp_path)
    context = authority.server().context()
    ca = str(authority.ca_file)
    async with house(auth=authenticator({"bob": stored}), tls_context=context) as place:
        for _ in range(3):
            row = await asyncio.to_thread(
                query_with_pymysql, place.port, user="bob", password="s3cret", ssl={"ca": ca}
            )
            assert row == ("bob@127.0.0.1",)
        with pytest.raises(pymysql.err.OperationalError, match="1045"):
            await asyncio.to_thread(
                query_with_pymysql, place.port, user="bob", password="wrong", ssl={"ca": ca}
            )


async def test_tls_is_offered_only_where_there_is_a_certificate() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.greeting()
        capabilities = DEFAULT | Capability.SSL
        client.send(capabilities.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23))
        assert error_number(await client.receive()) == 1835


async def test_a_handshake_that_comes_with_the_request_for_tls_and_is_none(tmp_path: Path) -> None:
    context = Authority(tmp_path).server().context()
    async with house(tls_context=context) as place:
        async with RawClient(place.port) as client:
            await client.greeting()
            capabilities = DEFAULT | Capability.SSL
            request = capabilities.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23)
            client.send_bytes(b"\x20\0\0\1" + request + b"\x09\0\0\2\x03SELECT 1")
            assert await client.at_end()
        assert nothing_ran(place)


@pytest.mark.parametrize("together", [0, 20, 10_000])
async def test_a_tls_handshake_that_begins_unasked(tmp_path: Path, together: int) -> None:
    """MySQL's client does not wait after it has asked for TLS: ``together`` bytes come in one piece with
    that."""
    authority = Authority(tmp_path)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    capabilities = DEFAULT | Capability.SSL
    request = capabilities.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23)
    async with house(tls_context=authority.server().context()) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        greeting = await reader.read(65536)
        assert greeting[4] == 10
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        writer.write(b"\x20\0\0\1" + request + hello[:together])
        await asyncio.sleep(0.01)
        writer.write(hello[together:])
        done = False
        while not done:
            incoming.write(await reader.read(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                done = True
            writer.write(outgoing.read())
        response = request + b"bob\0\0\0\0"
        tls.write(len(response).to_bytes(3, "little") + b"\2" + response)
        writer.write(outgoing.read())
        answer = b""
        while not answer:
            incoming.write(await reader.read(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer = tls.read(100)
        assert answer[3:5] == b"\3\0"
        writer.close()


async def test_provider_none_takes_the_name_whatever_the_password() -> None:
    async with house() as place:
        for password in ("", "anything"):
            row = await asyncio.to_thread(query_with_pymysql, place.port, user="ann", password=password)
            assert row == ("ann@127.0.0.1",)
        assert place.pipeline.conversations[0].identity.authenticated is False


NATIVE = "mysql_native_password"


@pytest.mark.parametrize(
    ("plugin", "proof", "switched_to", "answer", "more"),
    [
        ("caching_sha2_password", b"x" * 32, "", b"", True),
        ("caching_sha2_password", b"", "", b"", False),
        ("caching_sha2_password", b"\0", "", b"", False),
        (NATIVE, b"", NATIVE, b"", False),
        (NATIVE, b"x" * 20, NATIVE, b"y" * 20, False),
        ("client_ed25519", b"", "caching_sha2_password", b"x" * 32, True),
        ("client_ed25519", b"", "caching_sha2_password", b"", False),
        ("mysql_clear_password", b"any\0", "", b"", False),
        ("mysql_clear_password", b"\0", "", b"", False),
        ("", b"x" * 20, "", b"", False),
    ],
)
async def test_provider_none_says_what_each_plugin_waits_for(
    plugin: str, proof: bytes, switched_to: str, answer: bytes, more: bool
) -> None:
    """caching_sha2_password waits for 0x03 once it has sent a scramble; a plugin that is not the greeting's
    may have sent nothing yet."""
    async with house() as place, RawClient(place.port) as client:
        await client.greeting()
        client.respond("ann", proof, plugin=plugin)
        if switched_to:
            switch = await client.receive()
            assert switch.startswith(b"\xfe" + switched_to.encode() + b"\0")
            assert len(switch) == len(switched_to) + 23
            client.send(answer)
        if more:
            assert await client.receive() == b"\x01\x03"
        assert (await client.receive())[0] == 0
        assert (await client.query("SELECT USER()"))[2] == b"\x0dann@127.0.0.1"


WITHOUT_PLUGINS = DEFAULT & ~Capability.PLUGIN_AUTH & ~Capability.PLUGIN_AUTH_LENENC_DATA


@pytest.mark.parametrize("proof", [b"", b"x" * 20])
async def test_a_client_that_knows_of_no_plugins(proof: bytes) -> None:
    """It cannot be switched: it is let in where nothing is proved, and refused in words elsewhere."""
    for auth, number in ((authenticator(), 0), (authenticator(BOB), 1045)):
        async with house(auth=auth) as place, RawClient(place.port) as client:
            await client.greeting()
            head = WITHOUT_PLUGINS.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23)
            client.send(head + b"bob\0" + bytes((len(proof),)) + proof + b"\0")
            answer = await client.receive()
            if number:
                assert error_number(answer) == number
                assert b"too old for caching_sha2_password" in answer
                assert await client.at_end()
                assert nothing_ran(place)
            else:
                assert answer[0] == 0


@pytest.mark.parametrize(
    ("plugin", "answer", "more"),
    [(NATIVE, b"x" * 20, False), ("caching_sha2_password", b"x" * 32, True), ("sha256_password", b"", False)],
)
async def test_a_change_of_user_where_nothing_is_proved(plugin: str, answer: bytes, more: bool) -> None:
    async with house() as place, RawClient(place.port) as client:
        assert (await client.log_in("bob"))[0] == 0
        switch = await client.command(b"\x11eve\0\0\0\x2d\0" + plugin.encode() + b"\0")
        expected = NATIVE if plugin == NATIVE else "caching_sha2_password"
        assert switch.startswith(b"\xfe" + expected.encode() + b"\0")
        client.send(answer)
        if more:
            assert await client.receive() == b"\x01\x03"
        assert (await client.receive())[0] == 0
        assert (await client.query("SELECT USER()"))[2] == b"\x0deve@127.0.0.1"


async def test_mysql_clear_password_without_a_password() -> None:
    async with house(auth=authenticator(BOB)) as place, RawClient(place.port) as client:
        await client.greeting()
        client.respond("bob", b"\0", plugin="mysql_clear_password")
        answer = await client.receive()
        assert error_number(answer) == 1045
        assert b"sent no password" in answer


async def test_a_name_is_required_where_the_configuration_says_so() -> None:
    async with house(auth=authenticator(required=True)) as place, RawClient(place.port) as client:
        assert error_number(await client.log_in("")) == 1045


@pytest.mark.parametrize("error", [NotConfigured("no configuration"), ShuttingDown("draining")])
async def test_a_server_that_is_not_ready_says_so_instead_of_a_greeting(
    error: NotConfigured | ShuttingDown,
) -> None:
    async with house() as place:
        place.pipeline.not_ready = error
        async with RawClient(place.port) as client:
            answer = await client.receive()
            assert error_number(answer) == 1053
            assert answer[3:] == error.message.encode()
            assert await client.at_end()


async def test_too_many_connections() -> None:
    async with house(max_connections=1) as place, RawClient(place.port) as first:
        await first.log_in()
        async with RawClient(place.port) as second:
            answer = await second.receive()
            assert error_number(answer) == 1040
            assert await second.at_end()
        assert (await first.command(b"\x0e"))[0] == 0


async def test_connection_ids_are_unique_and_name_the_process() -> None:
    async with house() as place:
        numbers = []
        for _ in range(3):
            async with RawClient(place.port) as client:
                await client.log_in()
                numbers.append(client.number)
        assert len(set(numbers)) == 3
        assert len({number >> 20 for number in numbers}) == 1
        assert numbers[0] >> 20 > 0


async def test_connection_attributes_and_the_database_reach_the_session() -> None:
    async with house() as place:
        await asyncio.to_thread(
            query_with_pymysql, place.port, user="ann", database="sales", program_name="report"
        )
        session = place.pipeline.conversations[0].session
        assert session.database == "sales"
        assert session.extra["program_name"] == "report"
        assert session.peer.startswith("127.0.0.1:")


async def test_a_change_of_user() -> None:
    auth = authenticator({"bob": "s3cret", "eve": "other"})
    async with house(auth=auth) as place, RawClient(place.port) as client:
        assert (await client.log_in("bob", "s3cret"))[0] == 0
        await client.query("SET @a = 1")
        switch = await client.command(b"\x11eve\0\0\0\x2d\0caching_sha2_password\0")
        client.send(scramble("other", switch[23:43]))
        assert await client.receive() == b"\x01\x03"
        assert (await client.receive())[0] == 0
        assert (await client.query("SELECT USER()"))[2] == b"\x0deve@127.0.0.1"
        assert (await client.query("SELECT @a"))[2] == b"\xfb"
        assert [talk.closed for talk in place.pipeline.conversations] == [True, False]


async def test_a_change_to_a_wrong_user_ends_it() -> None:
    async with house(auth=authenticator(BOB)) as place, RawClient(place.port) as client:
        assert (await client.log_in("bob", "s3cret"))[0] == 0
        switch = await client.command(b"\x11eve\0\0\0\x2d\0caching_sha2_password\0")
        client.send(scramble("s3cret", switch[23:43]))
        assert error_number(await client.receive()) == 1045
        assert await client.at_end()
