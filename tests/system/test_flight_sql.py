"""The Flight SQL door as its clients see it: ADBC's driver and pyarrow's client, over DuckDB."""

import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from queryflux.model.endings import EndReason
from queryflux.model.errors import ConfigError
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message
from tests.kit.pki import Authority
from tests.kit.serving import Serving, serving

adbc = pytest.importorskip(
    "adbc_driver_flightsql.dbapi", reason="the ADBC Flight SQL driver is not installed"
)
pytest.importorskip("duckdb", reason="DuckDB is not installed")

ENGINE = """
clusters:
  duck: {engine: duckDb}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""
PLAIN = (
    """
queryflux:
  frontends:
    trinoHttp: {enabled: false}
    flightSql: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: warning}
"""
    + ENGINE
)
USERS = """
auth:
  provider: static
  required: true
  staticUsers:
    users:
      anne: {password: "pä:ss", groups: [bi]}
      bob: {password: bobs}
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with serving(PLAIN) as running:
        yield running
        running.assert_idle()


@pytest.fixture
def connection(served: Serving) -> Iterator[Any]:
    with connect(served) as made:
        yield made


def connect(served: Serving, **options: Any) -> Any:
    options.setdefault("autocommit", True)
    return adbc.connect(f"grpc://127.0.0.1:{served.port('flightSql')}", **options)


def rows(connection: Any, sql: str, parameters: Any = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        fetched: list[Any] = cursor.fetchall()
        return fetched


def raw(served: Serving) -> flight.FlightClient:
    return flight.FlightClient(f"grpc://127.0.0.1:{served.port('flightSql')}")


def command(message: Message) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(m.pack(message))


# Statements and results.


def test_a_query_and_its_record(served: Serving, connection: Any) -> None:
    assert rows(connection, "SELECT 1 AS x, 'ä' AS y") == [(1, "ä")]
    record = served.records[-1]
    assert (record.sql_text, record.reason, record.rows_returned) == (
        "SELECT 1 AS x, 'ä' AS y",
        EndReason.COMPLETED,
        1,
    )
    assert (record.username, record.frontend_protocol) == ("anonymous", "FlightSql")


def test_types_come_as_the_engine_has_them(connection: Any) -> None:
    sql = """
        SELECT true AS a, 1::TINYINT AS b, 18446744073709551615::UBIGINT AS c, 1.5::DOUBLE AS d,
               12345678901234567890123456789012345.678::DECIMAL(38,3) AS e, DATE '0001-01-01' AS f,
               TIMESTAMP '9999-12-31 23:59:59.999999' AS g, 'x'::BLOB AS h, [1, 2] AS i, NULL::INTEGER AS j
    """
    with connection.cursor() as cursor:
        cursor.execute(sql)
        table = cursor.fetch_arrow_table()
    assert [str(kind) for kind in table.schema.types] == [
        "bool",
        "int8",
        "uint64",
        "double",
        "decimal128(38, 3)",
        "date32[day]",
        "timestamp[us]",
        "binary",
        "list<l: int32>",
        "int32",
    ]
    assert table.to_pylist()[0] == {
        "a": True,
        "b": 1,
        "c": 2**64 - 1,
        "d": 1.5,
        "e": Decimal("12345678901234567890123456789012345.678"),
        "f": dt.date(1, 1, 1),
        "g": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "h": b"x",
        "i": [1, 2],
        "j": None,
    }


@pytest.mark.parametrize(
    ("sql", "kind", "values"),
    [
        ("SELECT 'b'::ENUM('a', 'b') AS e UNION ALL SELECT NULL", "string", ["b", None]),
        ("SELECT 'a'::ENUM('a', 'b') AS e WHERE false", "string", []),
        ("SELECT ['a', NULL]::ENUM('a')[] AS e", "list<l: string>", [["a", None]]),
        ("SELECT ['a', 'b']::ENUM('a', 'b')[2] AS e", "fixed_size_list<: string>[2]", [["a", "b"]]),
        (
            "SELECT {'x': 'a'::ENUM('a'), 'y': 1} AS e UNION ALL SELECT NULL",
            "struct<x: string, y: int32>",
            [{"x": "a", "y": 1}, None],
        ),
        ("SELECT map{'k': 'a'::ENUM('a')} AS e", "map<string, string>", [[("k", "a")]]),
        ("SELECT union_value(k := 'a'::ENUM('a')) AS e", "sparse_union<k: string=0>", ["a"]),
        ("SELECT ('v' || (range % 3))::ENUM('v0', 'v1', 'v2') AS e FROM range(50000)", "string", None),
    ],
)
def test_an_enum_comes_as_its_text(connection: Any, sql: str, kind: str, values: list[Any] | None) -> None:
    with connection.cursor() as cursor:
        assert str(cursor.adbc_execute_schema(sql).field("e").type) == kind
        for prepare in (False, True):
            if prepare:
                announced = cursor.adbc_prepare(sql)
                assert announced is None or len(announced) == 0
            cursor.execute(sql)
            table = cursor.fetch_arrow_table()
            assert str(table.schema.field("e").type) == kind
            expected = [f"v{n % 3}" for n in range(50000)] if values is None else values
            assert table.column("e").to_pylist() == expected


def test_no_rows_and_many_rows(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 AS x WHERE false")
        assert [column[0] for column in cursor.description] == ["x"]
        assert cursor.fetchall() == []
        cursor.execute("SELECT range AS n FROM range(1000000)")
        column = cursor.fetch_arrow_table().column("n")
    assert (len(column), pa.compute.sum(column).as_py()) == (1_000_000, 499_999_500_000)


def test_rows_wider_than_a_message_may_be(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT repeat('x', 20000) AS x FROM range(3000)")
        assert cursor.fetch_arrow_table().num_rows == 3000


def test_parameters(connection: Any) -> None:
    assert rows(connection, "SELECT ? + 1, ?", (41, "it's")) == [(42, "it's")]
    assert rows(connection, "SELECT ?::DATE + 1", (dt.date(2024, 2, 28),)) == [(dt.date(2024, 2, 29),)]


@pytest.mark.parametrize(
    "value",
    [
        *(3, 2.5, "x", True, None, b"x", [1, 2], Decimal("1.50")),
        *(dt.date(2024, 1, 2), dt.time(1, 2), dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_a_parameter_gives_its_column_its_type(connection: Any, value: Any) -> None:
    assert rows(connection, "SELECT ?", (value,)) == [(value,)]


def test_a_null_of_no_type(connection: Any) -> None:
    assert rows(connection, "SELECT NULL") == [(None,)]


def test_a_query_takes_one_row_of_parameters(connection: Any) -> None:
    two = pa.record_batch({"0": pa.array([1, 2])})
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("SELECT ?")
        cursor.adbc_statement.prepare()
        cursor.adbc_statement.bind(two)
        with pytest.raises(adbc.ProgrammingError, match="one row"):
            cursor.adbc_statement.execute_query()


def test_the_schema_without_running(connection: Any) -> None:
    with connection.cursor() as cursor:
        assert cursor.adbc_execute_schema("SELECT 1 AS x") == pa.schema([("x", pa.int32())])


# Changes and transactions.


def test_tables_are_made_filled_and_counted(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filled (a INTEGER, b VARCHAR)")
        cursor.executemany("INSERT INTO filled VALUES (?, ?)", [(1, "x"), (2, None)])
        assert cursor.rowcount == 2
        cursor.execute("INSERT INTO filled VALUES (3, 'z')")
        assert rows(connection, "SELECT * FROM filled ORDER BY a") == [(1, "x"), (2, None), (3, "z")]
        cursor.adbc_statement.set_sql_query("DELETE FROM filled WHERE a < 3")
        assert cursor.adbc_statement.execute_update() == 2
        with pytest.raises(adbc.ProgrammingError, match=r"Conversion|convert"):
            cursor.executemany("INSERT INTO filled VALUES (?::INTEGER, ?)", [("4", "y"), ("five", "y")])
        assert rows(connection, "SELECT a FROM filled") == [(3,)]
        cursor.execute("DROP TABLE filled")


def test_commit_and_rollback(served: Serving, connection: Any) -> None:
    rows(connection, "CREATE TABLE ledger (a INTEGER)")
    with connect(served, autocommit=False) as other:
        rows(other, "INSERT INTO ledger VALUES (1)")
        assert rows(connection, "SELECT count(*) FROM ledger") == [(0,)]
        other.commit()
        assert rows(connection, "SELECT count(*) FROM ledger") == [(1,)]
        rows(other, "INSERT INTO ledger VALUES (2)")
        other.rollback()
        assert rows(connection, "SELECT count(*) FROM ledger") == [(1,)]
    rows(connection, "DROP TABLE ledger")
    served.assert_idle()


def test_a_client_that_neither_commits_nor_rolls_back_leaves_nothing(served: Serving) -> None:
    with connect(served, autocommit=False) as forgetful:
        assert rows(forgetful, "SELECT 1") == [(1,)]
    served.assert_idle(seconds=3)


# Metadata.


def test_tables_as_tools_list_them(connection: Any) -> None:
    rows(connection, 'CREATE TABLE "Sp ecial" (id INTEGER, price DECIMAL(15, 2))')
    rows(connection, 'CREATE VIEW glance AS SELECT id FROM "Sp ecial"')
    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    tables = {
        table["table_name"]: (table["table_type"], [c["column_name"] for c in table["table_columns"]])
        for catalog in objects
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    assert tables["Sp ecial"] == ("TABLE", ["id", "price"])
    assert tables["glance"] == ("VIEW", ["id"])
    only_views = (
        connection.adbc_get_objects(depth="tables", table_types_filter=["VIEW"]).read_all().to_pylist()
    )
    assert "Sp ecial" not in str(only_views)
    assert connection.adbc_get_table_schema("Sp ecial") == pa.schema(
        [("id", pa.int32()), ("price", pa.decimal128(15, 2))]
    )
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    assert connection.adbc_get_info()["vendor_name"] == "QueryFlux"
    rows(connection, "DROP VIEW glance")
    rows(connection, 'DROP TABLE "Sp ecial"')


# Errors.


@pytest.mark.parametrize(
    ("sql", "kind", "says"),
    [
        ("SELEC 1", "ProgrammingError", "INVALID_ARGUMENT.*syntax error"),
        ("SELECT * FROM nowhere", "ProgrammingError", "NOT_FOUND.*nowhere"),
        ("-- nothing", "ProgrammingError", "INVALID_ARGUMENT.*empty"),
        ("SELECT 1; SELECT 2", "ProgrammingError", "one statement at a time"),
        ("BEGIN", "ProgrammingError", "commit"),
        ("SET threads = 1", "NotSupportedError", "no session"),
        ("SELECT error('amid')", "Error", "amid"),
    ],
)
def test_what_a_client_is_told(connection: Any, sql: str, kind: str, says: str) -> None:
    with pytest.raises(getattr(adbc, kind), match=f"(?s){says}") as failure:
        rows(connection, sql)
    assert "Traceback" not in str(failure.value)
    assert rows(connection, "SELECT 1") == [(1,)]


def test_requests_that_are_not_flight_sql(served: Serving) -> None:
    with raw(served) as client:
        for descriptor in (
            flight.FlightDescriptor.for_command(b"SELECT 1"),
            flight.FlightDescriptor.for_command(b"\xff" * 50),
            flight.FlightDescriptor.for_path("a", "table"),
            command(m.CommandStatementUpdate("SELECT 1")),
        ):
            with pytest.raises(pa.ArrowInvalid) as failure:
                client.get_flight_info(descriptor)
            assert "Traceback" not in str(failure.value)
        with pytest.raises(pa.ArrowInvalid):
            client.do_get(flight.Ticket(b"made up")).read_all()
        handle = f"0123456789_{served.standalone.process_tag}"
        ticket = m.pack(m.TicketStatementQuery(handle.encode()))
        with pytest.raises(KeyError, match="unknown"):
            client.do_get(flight.Ticket(ticket)).read_all()
        with pytest.raises(NotImplementedError) as unknown:
            list(client.do_action(flight.Action("SetSessionOptions", b"")))
        assert "Traceback" not in str(unknown.value)
        with pytest.raises(NotImplementedError):
            list(client.list_flights())


def test_calls_that_flight_sql_does_not_use(served: Serving) -> None:
    with raw(served) as client:
        with pytest.raises(pa.ArrowNotImplementedError, match="ListFlights is not supported") as caught:
            list(client.list_flights())
        assert "Traceback" not in str(caught.value)
        assert ".py" not in str(caught.value)
        descriptor = flight.FlightDescriptor.for_path("x")
        _, reader = client.do_exchange(descriptor)
        with pytest.raises(pa.ArrowNotImplementedError, match="DoExchange is not supported") as caught:
            reader.read_chunk()
        assert "Traceback" not in str(caught.value)


def test_a_ticket_is_good_once(served: Serving) -> None:
    with raw(served) as client:
        info = client.get_flight_info(command(m.CommandStatementQuery("SELECT 7 AS x")))
        assert (info.total_records, info.total_bytes, info.schema) == (-1, -1, None)
        ticket = info.endpoints[0].ticket
        assert client.do_get(ticket).read_all().to_pydict() == {"x": [7]}
        with pytest.raises(KeyError, match="used"):
            client.do_get(ticket).read_all()


# Endings.


def test_a_client_that_stops_reading_halfway_ends_its_query(served: Serving) -> None:
    with raw(served) as client:
        info = client.get_flight_info(
            command(m.CommandStatementQuery("SELECT range AS n FROM range(500000000)"))
        )
        reader = client.do_get(info.endpoints[0].ticket)
        assert reader.read_chunk().data.num_rows > 0
        reader.cancel()
        served.assert_idle(seconds=3)
    record = served.records[-1]
    assert record.reason is EndReason.CLIENT_GONE
    assert (record.rows_returned or 0) < 50_000_000


def test_a_cancel_while_the_engine_computes(served: Serving) -> None:
    sql = "SELECT count(*) FROM range(1000000000) a, range(1000) b WHERE a.range % 7 = b.range"
    with connect(served) as connection, connection.cursor() as cursor:
        failures: list[str] = []

        def run() -> None:
            try:
                cursor.execute(sql)
                cursor.fetchall()
            except adbc.Error as error:
                failures.append(str(error))

        running = threading.Thread(target=run)
        running.start()
        served.wait_for(lambda: len(served.standalone.pipeline.running) == 1)
        cursor.adbc_cancel()
        running.join(10)
        assert not running.is_alive()
        assert "CANCELLED" in failures[0].upper()
        served.assert_idle(seconds=3)
        assert rows(connection, "SELECT 1") == [(1,)]


def test_cancel_flight_info(served: Serving) -> None:
    with raw(served) as client:
        info = client.get_flight_info(command(m.CommandStatementQuery("SELECT range FROM range(500000000)")))
        reader = client.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
        result = client.cancel_flight_info(info) if hasattr(client, "cancel_flight_info") else None
        if result is None:
            body = b"\x0a" + varint(len(info.serialize())) + info.serialize()
            (answer,) = client.do_action(flight.Action("CancelFlightInfo", body))
            assert answer.body.to_pybytes() == b"\x08\x01"
        served.assert_idle(seconds=3)
        # read_all would make of this status what Ctrl-C makes of it.
        with pytest.raises(pa.ArrowCancelled):
            drain(reader)


def drain(reader: Any) -> None:
    while reader.read_chunk() is not None:
        pass


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_many_clients_at_once(served: Serving) -> None:
    def one(number: int) -> int:
        with connect(served) as connection:
            return int(rows(connection, f"SELECT sum(range) + {number} FROM range(10000)")[0][0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(24))) == [49_995_000 + n for n in range(24)]
    served.assert_idle()


def test_close_with_open_results_transactions_and_idle_clients() -> None:
    with serving(PLAIN) as served:
        client, other = raw(served), connect(served, autocommit=False)
        rows(other, "SELECT 1")
        info = client.get_flight_info(command(m.CommandStatementQuery("SELECT range FROM range(500000000)")))
        reader = client.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
    with pytest.raises((flight.FlightError, pa.ArrowException)):
        drain(reader)
    client.close()
    with pytest.raises(adbc.Error):
        rows(other, "SELECT 1")
    other.close()


def test_a_port_that_is_taken_and_a_certificate_that_is_not_there(served: Serving) -> None:
    taken = PLAIN.replace("port: 0}", f"port: {served.port('flightSql')}}}", 1)
    with pytest.raises(ConfigError, match="flightSql listener cannot bind"), serving(taken):
        pass
    missing = PLAIN.replace("flightSql: {", "flightSql: {tls: {certFile: /no.pem, keyFile: /no.key}, ")
    with pytest.raises(ConfigError, match=r"no\.pem"), serving(missing):
        pass


# Credentials.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[Serving]:
    certificate = authority.server()
    tls = f"tls: {{certFile: {certificate.cert_file}, keyFile: {certificate.key_file}}}"
    with serving(PLAIN.replace("flightSql: {", "flightSql: {" + tls + ", ") + USERS) as running:
        yield running


def login(served: Serving, ca_file: Path, user: str | None, password: str = "") -> Any:
    options = {"adbc.flight.sql.client_option.tls_root_certs": ca_file.read_text()}
    if user is not None:
        options |= {"username": user, "password": password}
    return adbc.connect(
        f"grpc+tls://localhost:{served.port('flightSql')}", db_kwargs=options, autocommit=True
    )


def test_a_password_over_tls(secure: Serving, authority: Authority) -> None:
    with login(secure, authority.ca_file, "anne", "pä:ss") as connection:
        assert rows(connection, "SELECT 1") == [(1,)]
    assert secure.records[-1].username == "anne"


@pytest.mark.parametrize(("user", "password"), [("anne", "wrong"), ("nobody", "pä:ss"), (None, "")])
def test_a_client_that_is_not_let_in(
    secure: Serving, authority: Authority, user: str | None, password: str
) -> None:
    before = len(secure.records)
    with pytest.raises(adbc.Error, match=r"(?i)unauthenticated"):  # noqa: SIM117
        with login(secure, authority.ca_file, user, password) as connection:
            rows(connection, "SELECT 1")
    assert len(secure.records) == before


def tls_client(served: Serving, authority: Authority) -> flight.FlightClient:
    location = f"grpc+tls://localhost:{served.port('flightSql')}"
    return flight.FlightClient(location, tls_root_certs=authority.ca_file.read_bytes())


def test_a_bearer_token_and_what_it_is_not_good_for(secure: Serving, authority: Authority) -> None:
    with tls_client(secure, authority) as client:
        tokens = [client.authenticate_basic_token(*who) for who in (("anne", "pä:ss"), ("bob", "bobs"))]
        options = [flight.FlightCallOptions(headers=[token]) for token in tokens]
        info = client.get_flight_info(command(m.CommandStatementQuery("SELECT 1 AS x")), options[0])
        ticket = info.endpoints[0].ticket
        with pytest.raises(flight.FlightUnauthorizedError, match="another user"):
            client.do_get(ticket, options[1]).read_all()
        assert client.do_get(ticket, options[0]).read_all().num_rows == 1


def test_every_call_is_closed_to_strangers(secure: Serving, authority: Authority) -> None:
    stranger = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer made-up")])
    descriptor = command(m.CommandStatementQuery("SELECT 1"))
    with tls_client(secure, authority) as client:
        for options in (flight.FlightCallOptions(), stranger):
            for call in (
                lambda o: client.get_flight_info(descriptor, o),
                lambda o: client.get_schema(descriptor, o),
                lambda o: client.do_get(flight.Ticket(b"x"), o).read_all(),
                lambda o: list(client.do_action(flight.Action("BeginTransaction", b""), o)),
                lambda o: list(client.list_actions(o)),
                lambda o: list(client.list_flights(b"", o)),
                lambda o: client.do_put(descriptor, pa.schema([]), o)[0].close(),
                lambda o: client.do_exchange(descriptor, o)[1].read_all(),
            ):
                # get_schema alone raises a bare OSError in pyarrow's client.
                with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="Unauthenticated"):
                    call(options)


def test_credentials_in_clear_are_refused() -> None:
    with (
        serving(PLAIN + USERS) as served,
        raw(served) as client,
        pytest.raises(flight.FlightUnauthenticatedError, match="TLS"),
    ):
        client.authenticate_basic_token("anne", "pä:ss")
    allowed = USERS.replace("required: true", "required: true\n  allowPlaintextCredentials: true")
    with serving(PLAIN + allowed) as served, raw(served) as client:
        header = client.authenticate_basic_token("anne", "pä:ss")
        options = flight.FlightCallOptions(headers=[header])
        assert len(list(client.list_actions(options))) == 7
