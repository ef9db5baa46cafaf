"""Authentication, one contract for the four doors, asked through real clients.

Who is let in by which stored password, over TLS and without; and that whoever is not let in gets the
protocol's own error and nothing else: no answer, no record, no statement at the engine.
"""

import logging
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from queryflux.auth.hashes import HASHES
from queryflux.auth.passwords import bcrypt_hash
from queryflux.model.endings import EndReason
from queryflux.model.errors import ConfigError
from tests.kit.doors import DOORS, HOST, Door, Refusal, every_door
from tests.kit.leaks import nothing_left
from tests.kit.pki import Authority
from tests.kit.raw import (
    MYSQL_CLEAR_PASSWORD,
    MYSQL_SHA2,
    RawConnection,
    http,
    mysql_command,
    mysql_login,
    postgres_errors,
    postgres_message,
    postgres_messages,
    postgres_startup,
)
from tests.kit.serving import DOORS as ALL_DOORS
from tests.kit.watched import CLUSTERS, Watched, watched

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

PASSWORD = "Sesam öffne dich"
WRONG = "Sesam schließe dich"
FORMS = {
    "plain": PASSWORD,
    "scram": HASHES["scram"](PASSWORD),
    "sha2": HASHES["sha2"](PASSWORD),
    "bcrypt": bcrypt_hash(PASSWORD, rounds=4),
}


def static(*forms: str, extra: str = "") -> str:
    users = "\n".join(f"      {form}: {{password: '{FORMS[form]}', groups: [{form}s]}}" for form in forms)
    return f"auth:\n  provider: static\n  required: true\n{extra}  staticUsers:\n    users:\n{users}\n"


def with_tls(authority: Authority) -> str:
    """All doors and the operator port with a certificate."""
    certificate = authority.server()
    tls = f"tls: {{certFile: {certificate.cert_file}, keyFile: {certificate.key_file}}}"
    return ALL_DOORS.replace("{host:", f"{{{tls}, host:")


def refused(door: Door, port: int, user: str, password: str, ca: Path | None = None) -> Refusal:
    """The refusal that a client gets who asks for something that needs no engine, and for a query."""
    for sql in ("SHOW TABLES", "SELECT 1"):
        with pytest.raises(Refusal) as raised:
            door.ask(port, sql, user, password, ca)
    return raised.value


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def trusting() -> Iterator[Watched]:
    with watched(CLUSTERS) as served:
        yield served


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[Watched]:
    with watched(with_tls(authority) + CLUSTERS + static(*FORMS)) as served:
        yield served


@pytest.fixture(scope="module")
def clear() -> Iterator[Watched]:
    """Without TLS, and passwords may not travel in clear."""
    with watched(CLUSTERS + static("plain", "scram", "sha2")) as served:
        yield served


@pytest.fixture(scope="module")
def lax() -> Iterator[Watched]:
    """Without TLS, and passwords may travel in clear."""
    with watched(CLUSTERS + static(*FORMS, extra="  allowPlaintextCredentials: true\n")) as served:
        yield served


# Who is let in.


@every_door
def test_without_a_provider_a_name_is_taken_at_its_word(trusting: Watched, door: Door) -> None:
    assert door.ask(trusting.port(door.name), "SELECT 1", "ann") == [(1,)]
    identity = trusting.engine.requests[-1].identity
    # Flight SQL has no user name outside credentials.
    assert identity.user == ("anonymous" if door.name == "flightSql" else "ann")
    assert not identity.authenticated
    record = trusting.running.records[-1]
    assert (record.username, record.frontend_protocol) == (identity.user, door.label)


@every_door
def test_without_a_provider_a_password_is_not_looked_at(trusting: Watched, door: Door) -> None:
    if door.name == "postgresWire":
        pytest.skip("PostgreSQL clients send a password only when asked")
    assert door.ask(trusting.port(door.name), "SELECT 1", "ann", "whatever") == [(1,)]
    assert trusting.engine.requests[-1].identity.user == "ann"


@pytest.mark.parametrize("form", FORMS)
@every_door
def test_the_right_password_over_tls(secure: Watched, authority: Authority, door: Door, form: str) -> None:
    for _ in range(2):  # the second time is MySQL's fast path
        assert door.ask(secure.port(door.name), "SELECT 1", form, PASSWORD, authority.ca_file) == [(1,)]
    identity = secure.engine.requests[-1].identity
    assert (identity.user, identity.groups, identity.authenticated) == (form, (f"{form}s",), True)


@pytest.mark.parametrize("form", FORMS)
@every_door
def test_the_right_password_in_clear_where_that_is_allowed(lax: Watched, door: Door, form: str) -> None:
    assert door.ask(lax.port(door.name), "SELECT 1", form, PASSWORD) == [(1,)]
    assert lax.engine.requests[-1].identity.user == form


@pytest.mark.parametrize(
    ("door", "form"),
    [
        (door, form)
        for door in DOORS
        for form in ("plain", "scram", "sha2")
        if door.name in ("trinoHttp", "mysqlWire") or (door.name == "postgresWire" and form != "sha2")
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_what_needs_no_tls(clear: Watched, door: Door, form: str) -> None:
    """SCRAM and caching_sha2 (the full path under the door's key) prove a password without showing it; the
    Trino door warns, since a TLS terminator in front is usual."""
    assert door.ask(clear.port(door.name), "SELECT 1", form, PASSWORD) == [(1,)]
    assert clear.engine.requests[-1].identity.user == form


# Who is not.


@pytest.mark.parametrize("user", [*FORMS, "nobody"])
@every_door
def test_a_wrong_password_and_an_unknown_name(
    secure: Watched, authority: Authority, door: Door, user: str
) -> None:
    before = secure.traces
    with nothing_left(secure.running, sockets=door.name != "flightSql"):
        error = refused(door, secure.port(door.name), user, WRONG, authority.ca_file)
    assert error.code == door.codes["AUTHENTICATION_FAILED"]
    assert "password" in error.message
    assert PASSWORD not in error.message
    assert WRONG not in error.message
    assert secure.traces == before


@every_door
def test_names_that_exist_cannot_be_told_from_those_that_do_not(
    secure: Watched, authority: Authority, door: Door
) -> None:
    port = secure.port(door.name)
    words = {
        refused(door, port, user, WRONG, authority.ca_file).message.replace(user, "?")
        for user in ("plain", "nobody")
    }
    assert len({word.split("(")[0] for word in words}) == 1


@every_door
def test_missing_credentials(secure: Watched, authority: Authority, door: Door) -> None:
    before = secure.traces
    for user in ("plain", ""):
        error = refused(door, secure.port(door.name), user, "", authority.ca_file)
        # libpq itself gives up when it is asked for a password that it does not have.
        expected = {door.codes["AUTHENTICATION_FAILED"]} | ({""} if door.name == "postgresWire" else set())
        assert error.code in expected
    assert secure.traces == before


@every_door
def test_names_that_are_tried_on(secure: Watched, authority: Authority, door: Door) -> None:
    """Names with what other layers may take for their own, and very long ones."""
    before = secure.traces
    for user in ("plain' OR 'a'='a", "plain\t", "PLAIN", "n" * 300, "anonymous"):
        error = refused(door, secure.port(door.name), user, PASSWORD, authority.ca_file)
        assert error.code == door.codes["AUTHENTICATION_FAILED"], user
    assert secure.traces == before


def test_a_password_in_clear_is_refused_without_tls(clear: Watched) -> None:
    before = clear.traces
    postgres, flight = DOORS[1], DOORS[3]
    error = refused(postgres, clear.port(postgres.name), "sha2", PASSWORD)
    assert error.code == "28000"
    assert "this door has no TLS: give its listener tls" in error.message
    for user, password in (("plain", PASSWORD), ("plain", WRONG), ("nobody", PASSWORD)):
        error = refused(flight, clear.port(flight.name), user, password)
        assert error.code == "Unauthenticated"
        assert "this door has no TLS: give its listener tls" in error.message
    assert clear.traces == before


def test_a_bearer_token_in_clear_is_refused_without_tls(clear: Watched, lax: Watched) -> None:
    import pyarrow.flight as flight

    def call(served: Watched, token: bytes) -> list[object]:
        options = flight.FlightCallOptions(headers=[(b"authorization", token)])
        with flight.FlightClient(f"grpc://{HOST}:{served.port('flightSql')}") as client:
            return list(client.list_actions(options))

    with flight.FlightClient(f"grpc://{HOST}:{lax.port('flightSql')}") as client:
        _, token = client.authenticate_basic_token("plain", PASSWORD)
    assert call(lax, token)
    with pytest.raises(flight.FlightUnauthenticatedError, match="TLS"):
        call(clear, token)
    with pytest.raises(flight.FlightUnauthenticatedError, match="unknown"):
        call(lax, token[:-1])


def test_bcrypt_without_tls_is_refused_when_the_configuration_is_read() -> None:
    with pytest.raises(ConfigError, match="bcrypt") as raised, watched(CLUSTERS + static("bcrypt")):
        pass
    assert FORMS["bcrypt"] not in str(raised.value)


@every_door
def test_an_empty_name_where_one_is_required(door: Door) -> None:
    yaml = CLUSTERS + static("plain", extra="  allowPlaintextCredentials: true\n")
    with watched(yaml) as served:
        before = served.traces
        refused(door, served.port(door.name), "", "")
        refused(door, served.port(door.name), "", PASSWORD)
        assert served.traces == before


# Clients that do not keep to the protocol: nothing is looked at before they have proved who they are.

IMPATIENT = (b"SELECT 1", b"SHOW server_version", b"SET application_name = 'x'", b"BEGIN")


@pytest.mark.parametrize("sql", IMPATIENT)
def test_postgres_a_query_instead_of_the_password(clear: Watched, sql: bytes) -> None:
    query = postgres_message(b"Q", sql + b"\0")
    for user in ("plain", "nobody"):
        before = clear.traces
        with nothing_left(clear.running), RawConnection(clear.port("postgresWire")) as raw:
            raw.send(postgres_startup(user) + query)
            said = raw.rest()
        # An unknown name is treated as one of the others, be it one that needs TLS.
        assert postgres_errors(said) in (["08P01"], ["28000"] if user == "nobody" else [])
        assert {kind for kind, _ in postgres_messages(said)} <= {b"R", b"E"}
        assert clear.traces == before


def test_postgres_queries_after_a_wrong_proof(clear: Watched) -> None:
    before = clear.traces
    first = b"SCRAM-SHA-256\0" + (24).to_bytes(4) + b"n,,n=,r=abcdefghijklmnop"
    final = b"c=biws,r=abcdefghijklmnop,p=" + b"A" * 43 + b"="
    queries = b"".join(postgres_message(b"Q", sql + b"\0") for sql in IMPATIENT)
    with nothing_left(clear.running), RawConnection(clear.port("postgresWire")) as raw:
        raw.send(postgres_startup("plain") + postgres_message(b"p", first))
        raw.send(postgres_message(b"p", final) + queries)
        assert postgres_errors(raw.rest()) == ["28P01"]
    assert clear.traces == before


def test_postgres_without_a_name(clear: Watched) -> None:
    with RawConnection(clear.port("postgresWire")) as raw:
        raw.send(postgres_startup(""))
        assert postgres_errors(raw.rest()) == ["28000"]


def test_postgres_bytes_before_tls_are_not_taken_for_the_sessions(
    secure: Watched, authority: Authority
) -> None:
    """CVE-2021-23214's kind: what was sent in clear must not be read as if it had come under TLS."""
    with RawConnection(secure.port("postgresWire")) as raw:
        raw.send((8).to_bytes(4) + (80877103).to_bytes(4) + postgres_startup("plain"))
        assert raw.rest()[:1] != b"S"


@pytest.mark.parametrize("command", [b"\x0e", *(b"\x03" + sql for sql in IMPATIENT), b"\x16SELECT 1"])
def test_mysql_commands_after_a_wrong_password(clear: Watched, command: bytes) -> None:
    """Sent at once and sent after the error, as a client would that takes the refusal for a formality."""
    for user in ("plain", "nobody"):
        before = clear.traces
        with nothing_left(clear.running), RawConnection(clear.port("mysqlWire")) as raw:
            raw.packet()
            raw.send(mysql_login(user, b"x" * 32, MYSQL_SHA2) + mysql_command(command))
            _, error = raw.packet()
            if error == b"\x01\x04":  # an unknown name is treated as one of the others: the full path
                _, error = raw.packet()
            assert error[0] == 0xFF
            assert int.from_bytes(error[1:3], "little") in ({1045} if user == "plain" else {1045, 1156, 1835})
            raw.send(mysql_command(command))
            assert raw.rest() == b""
        assert clear.traces == before


def test_mysql_a_command_instead_of_the_login(clear: Watched) -> None:
    before = clear.traces
    with nothing_left(clear.running), RawConnection(clear.port("mysqlWire")) as raw:
        raw.packet()
        raw.send(mysql_command(b"\x03SELECT 1"))
        _, error = raw.packet()
        assert error[0] == 0xFF
        assert raw.rest() == b""
    assert clear.traces == before


def test_mysql_a_password_in_clear(clear: Watched, lax: Watched) -> None:
    login = mysql_login("plain", PASSWORD.encode() + b"\0", MYSQL_CLEAR_PASSWORD)
    with RawConnection(clear.port("mysqlWire")) as raw:
        raw.packet()
        raw.send(login)
        _, error = raw.packet()
        assert (error[0], int.from_bytes(error[1:3], "little")) == (0xFF, 1045)
        assert b"TLS" in error
        assert raw.rest() == b""
    with RawConnection(lax.port("mysqlWire")) as raw:
        raw.packet()
        raw.send(login)
        assert raw.packet()[1][0] == 0


@pytest.mark.parametrize(
    "head",
    [
        *(("POST", "/v1/statement", sql) for sql in (b"SELECT 1", b"SHOW CATALOGS", b"SET SESSION a = 1")),
        ("GET", "/v1/info", b""),
        ("GET", "/v1/statement/qf/queued/20260101_000000_00001_aaaaa/x/1", b""),
        ("DELETE", "/v1/query/20260101_000000_00001_aaaaa", b""),
        ("HEAD", "/nowhere", b""),
    ],
)
@pytest.mark.parametrize("header", ["", "X-Trino-User: plain", "Authorization: Basic cGxhaW46eA=="])
def test_trino_nothing_is_told_to_strangers(
    clear: Watched, head: tuple[str, str, bytes], header: str
) -> None:
    before = clear.traces
    request = http(*head, *([header] if header else []))
    with nothing_left(clear.running), RawConnection(clear.port("trinoHttp")) as raw:
        raw.send(request + request)
        raw.finish()
        said = raw.rest()
        assert said.startswith(b"HTTP/1.1 401 ")
        assert said.count(b"HTTP/1.1 ") == said.count(b"HTTP/1.1 401 ")
        assert b"WWW-Authenticate: Basic" in said
    assert clear.traces == before


def test_flight_nothing_is_told_to_strangers(lax: Watched) -> None:
    import pyarrow as pa
    import pyarrow.flight as flight

    from queryflux.wire.flight import messages as m

    descriptor = flight.FlightDescriptor.for_command(m.pack(m.CommandStatementQuery("SELECT 1")))
    catalogs = flight.FlightDescriptor.for_command(m.pack(m.CommandGetCatalogs()))
    calls = (
        lambda client, options: client.get_flight_info(descriptor, options),
        lambda client, options: client.get_flight_info(catalogs, options),
        lambda client, options: client.do_get(flight.Ticket(b"x"), options).read_all(),
        lambda client, options: list(client.do_action(flight.Action("BeginTransaction", b""), options)),
        lambda client, options: list(client.list_actions(options)),
        lambda client, options: client.do_put(descriptor, pa.schema([]), options)[0].close(),
    )
    before = lax.traces
    with nothing_left(lax.running), flight.FlightClient(f"grpc://{HOST}:{lax.port('flightSql')}") as client:
        for headers in ([], [(b"authorization", b"Bearer x")], [(b"authorization", b"Basic cGxhaW46eA==")]):
            for call in calls:
                with pytest.raises(flight.FlightUnauthenticatedError):
                    call(client, flight.FlightCallOptions(headers=headers))
    assert lax.traces == before


# What is encrypted.


@every_door
def test_a_certificate_that_is_not_trusted(secure: Watched, tmp_path: Path, door: Door) -> None:
    other = Authority(tmp_path, "Another CA").ca_file
    with pytest.raises((Refusal, ssl.SSLError)):
        door.ask(secure.port(door.name), "SELECT 1", "plain", PASSWORD, other)


def test_the_operator_port_over_tls(secure: Watched, authority: Authority) -> None:
    url = f"https://{HOST}:{secure.port('adminApi')}/readyz"
    with urllib.request.urlopen(url, context=authority.client_context()) as response:
        assert response.status == 200
    with pytest.raises(OSError):
        urllib.request.urlopen(url.replace("https", "http"))
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url)


def test_old_tls_is_refused(secure: Watched, authority: Authority) -> None:
    for port in (secure.port("trinoHttp"), secure.port("adminApi")):
        context = authority.client_context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection((HOST, port), 5) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(plain, server_hostname="localhost").close()


# What becomes known.


@every_door
def test_secrets_are_nowhere(
    door: Door, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    yaml = ALL_DOORS.replace("level: warning", "level: debug, format: json") + CLUSTERS
    yaml += static(*FORMS, extra="  allowPlaintextCredentials: true\n")
    caplog.set_level(logging.DEBUG)
    with watched(yaml) as served:
        port = served.port(door.name)
        for form in FORMS:
            door.ask(port, "SELECT 1", form, PASSWORD)
            messages = [refused(door, port, form, WRONG).message]
        standalone = served.running.standalone
        shown = [repr(standalone.config), str(standalone.config.auth), repr(standalone.auth.__dict__)]
        records = repr(served.running.records)
        metrics = standalone.exposition()[0].decode()
        failures = f'queryflux_auth_failures_total{{protocol="{door.label}"}}'
        counted = [line for line in metrics.splitlines() if line.startswith(failures)]
        assert [float(line.rpartition(" ")[2]) for line in counted] == [2.0 * len(FORMS)]
    captured = capfd.readouterr()
    everything = "\n".join([*messages, *shown, records, metrics, caplog.text, captured.out, captured.err])
    for secret in (PASSWORD, WRONG, *FORMS.values()):
        assert secret not in everything
        assert secret.encode().hex() not in everything


# Who may use which group.


@every_door
def test_a_group_that_is_not_for_everybody(door: Door) -> None:
    yaml = CLUSTERS.replace("[seen]}", "[seen], authorization: {allowGroups: [plains], allowUsers: [sha2]}}")
    with watched(yaml + static(*FORMS, extra="  allowPlaintextCredentials: true\n")) as served:
        port = served.port(door.name)
        for user in ("plain", "sha2"):
            assert door.ask(port, "SELECT 1", user, PASSWORD) == [(1,)]
        before = len(served.engine.requests)
        with nothing_left(served.running), door.connect(port, "scram", PASSWORD) as client:
            for _ in range(2):  # the connection stays usable
                with pytest.raises(Refusal) as raised:
                    client.ask("SELECT 1 AS y")
                assert raised.value.code == door.codes["ACCESS_DENIED"]
        assert len(served.engine.requests) == before
        records = served.running.records[2:]
        assert {(record.username, record.reason) for record in records} == {("scram", EndReason.DENIED)}
