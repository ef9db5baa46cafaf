"""The trino package (DBAPI and SQLAlchemy) against the Trino door in front of DuckDB."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import requests
import sqlalchemy as sa
import trino
from trino.auth import BasicAuthentication
from trino.exceptions import Error, TrinoUserError
from trino.transaction import IsolationLevel

from queryflux.frontends.trino_http.exchange import Exchange
from queryflux.model.endings import EndReason
from tests.kit.pki import Authority
from tests.kit.serving import Serving, serving

DUCKDB = """
clusters: {duck: {engine: duckDb, databasePath: ":memory:"}}
clusterGroups: {main: {members: [duck]}, narrow: {members: [duck], maxRunningQueries: 1}}
routers:
  - {type: tags, rules: [{tags: {team: narrow}, targetGroup: narrow}]}
routingFallback: main
"""
SLOW = (
    "SELECT count(*) FROM UNNEST(sequence(1, 100000)) a(x), UNNEST(sequence(1, 1000000)) b(y) "
    "WHERE x * y % 7 = 3"
)
PRODUCT = "SELECT count(*) FROM UNNEST(sequence(1, 2000)) a(x), UNNEST(sequence(1, 2000)) b(y)"
MANY = "SELECT n, n * 2, 'text ' || CAST(n AS VARCHAR) FROM UNNEST(sequence(1, 200000)) AS t(n)"


def connect(**options: Any) -> Any:
    """A DBAPI connection; the package has no annotations here."""
    make: Any = trino.dbapi.connect
    return make(**options)


@pytest.fixture(scope="module")
def running() -> Iterator[Serving]:
    with serving(DUCKDB) as run:
        yield run


@pytest.fixture
def connection(running: Serving) -> Iterator[Any]:
    made = connect(host="127.0.0.1", port=running.port("trinoHttp"), user="ann")
    with closing(made):
        yield made
    running.assert_idle()


def rows(connection: Any, sql: str, *parameters: Any) -> Any:
    cursor = connection.cursor()
    cursor.execute(sql, parameters or None)
    return cursor.fetchall()


def test_values_of_every_type(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(
        "SELECT true, 1, CAST(2 AS BIGINT), CAST(1.5 AS REAL), 2.5E0, DECIMAL '1.10', 'x', X'00ff', "
        "DATE '2024-02-29', TIME '23:59:59', TIMESTAMP '2024-02-29 01:02:03.456', "
        "TIMESTAMP '2024-02-29 01:02:03 UTC', UUID '12151fd2-7586-11e9-8f9e-2a86e4085a59', "
        "ARRAY[1, NULL], MAP(ARRAY['a'], ARRAY[1]), CAST(ROW(1, 'x') AS ROW(a integer, b varchar)), NULL"
    )
    (row,) = cursor.fetchall()
    assert row[:13] == [
        True,
        1,
        2,
        1.5,
        2.5,
        Decimal("1.10"),
        "x",
        b"\x00\xff",
        date(2024, 2, 29),
        clock_time(23, 59, 59),
        datetime(2024, 2, 29, 1, 2, 3, 456000),
        datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
        UUID("12151fd2-7586-11e9-8f9e-2a86e4085a59"),
    ]
    assert row[13:15] == [[1, None], {"a": 1}]
    assert tuple(row[15]) == (1, "x")
    assert row[16] is None
    kinds = [column.type_code for column in cursor.description]
    assert kinds[:6] == ["boolean", "integer", "bigint", "real", "double", "decimal(3,2)"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**40,
        -1.5,
        Decimal("-123.450"),
        'it\'s "quoted" ?',
        "é😀",
        b"\x00\xff",
        date(2024, 2, 29),
        datetime(2024, 2, 29, 1, 2, 3, 4),
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
        clock_time(1, 2, 3),
        [1, 2],
        ["a", None],
        {"a": 1},
        UUID("12151fd2-7586-11e9-8f9e-2a86e4085a59"),
    ],
)
def test_parameters(connection: Any, value: Any) -> None:
    assert rows(connection, "SELECT ?, '?'", value) == [[value, "?"]]


@pytest.mark.parametrize("legacy", [True, False])
def test_prepared_statements_in_both_ways(running: Serving, legacy: bool) -> None:
    made = connect(
        host="127.0.0.1", port=running.port("trinoHttp"), user="ann", legacy_prepared_statements=legacy
    )
    with closing(made):
        cursor = made.cursor()
        cursor.execute("SELECT ? + ?", (1, 2))
        assert cursor.fetchall() == [[3]]
        assert [column.name for column in cursor.describe("SELECT 1 AS a, 'x' AS b")] == ["a", "b"]


def test_many_rows_and_many_columns(connection: Any) -> None:
    got = rows(connection, MANY)
    assert len(got) == 200_000
    assert got[-1] == [200_000, 400_000, "text 200000"]
    wide = rows(connection, "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(300)))
    assert wide == [list(range(300))]


def test_errors_have_name_code_and_place(connection: Any) -> None:
    with pytest.raises(TrinoUserError) as caught:
        rows(connection, "SELECT *\nFROM missing")
    error = caught.value
    assert (error.error_name, error.error_code, error.error_type) == ("TABLE_NOT_FOUND", 46, "USER_ERROR")
    assert "missing" in error.message
    with pytest.raises(TrinoUserError) as caught:
        rows(connection, "SELEC 1")
    assert caught.value.error_name == "SYNTAX_ERROR"
    assert rows(connection, "SELECT 1") == [[1]]


def test_writes_and_transactions(running: Serving, connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE w (a integer)")
    cursor.execute("INSERT INTO w VALUES (1), (2)")
    assert cursor.rowcount == 2
    made = connect(
        host="127.0.0.1",
        port=running.port("trinoHttp"),
        user="ann",
        isolation_level=IsolationLevel.READ_COMMITTED,
    )
    with closing(made):
        assert rows(made, "INSERT INTO w VALUES (3)") == [[1]]
        assert rows(made, "SELECT count(*) FROM w") == [[3]]
        made.rollback()
        assert rows(made, "SELECT count(*) FROM w") == [[2]]
        rows(made, "INSERT INTO w VALUES (4)")
        made.commit()
    assert rows(connection, "SELECT sum(a) FROM w") == [[7]]


def test_the_clients_session(running: Serving, connection: Any) -> None:
    rows(connection, "SET SESSION query_tags = 'team:x,batch'")
    rows(connection, "SELECT 'tagged'")
    assert running.records[-1].query_tags == {"team": "x", "batch": None}
    rows(connection, "USE main")
    rows(connection, "SELECT 'used'")
    assert running.records[-1].database == "main"


def until_answered(cursor: Any) -> None:
    """The client has the answer to its POST."""
    deadline = time.monotonic() + 20
    while cursor._query is None or cursor._query._next_uri is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_cancel_stops_the_engine(running: Serving, connection: Any) -> None:
    cursor = connection.cursor()
    failure: list[Exception] = []

    def run() -> None:
        try:
            cursor.execute(SLOW)
            cursor.fetchall()
        except Error as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    running.wait_for(lambda: bool(running.standalone.pipeline.running))
    until_answered(cursor)
    cursor.cancel()
    thread.join(20)
    assert not thread.is_alive()
    running.assert_idle()
    assert running.records[-1].reason is EndReason.CANCELLED


def test_a_cancel_in_the_first_second_is_not_lost(
    running: Serving, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It does nothing while the answer to the POST is out, which may not be held for as long as polls are.
    monkeypatch.setattr(Exchange._next_page, "__defaults__", (60.0,))
    cursor = connection.cursor()

    def run() -> None:
        with suppress(Error):
            cursor.execute(SLOW)
            cursor.fetchall()

    thread = threading.Thread(target=run)
    thread.start()
    until_answered(cursor)
    cursor.cancel()
    thread.join(20)
    assert not thread.is_alive()
    running.assert_idle()
    assert running.records[-1].reason is EndReason.CANCELLED


def test_a_client_that_waits_for_room(running: Serving) -> None:
    port = running.port("trinoHttp")
    tags = {"client_tags": ["team"], "session_properties": {"query_tags": "team:narrow"}}
    done: list[Any] = []

    def ask() -> None:
        with closing(connect(host="127.0.0.1", port=port, user="ann", **tags)) as made:
            done.append(rows(made, PRODUCT))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == [[[4_000_000]]] * 8
    running.assert_idle()


def test_a_vanished_client_leaves_nothing(running: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queryflux.frontends.trino_http.exchange.FIRST_HOLD_SECONDS", 10)
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(
            f"http://127.0.0.1:{running.port('trinoHttp')}/v1/statement",
            data=SLOW.encode(),
            headers={"X-Trino-User": "ann"},
            timeout=0.3,
        )
    running.wait_for(lambda: running.records[-1].reason is EndReason.CLIENT_GONE)  # it may not have begun
    running.assert_idle()


def test_sqlalchemy(running: Serving) -> None:
    engine = sa.create_engine(f"trino://ann@127.0.0.1:{running.port('trinoHttp')}/memory/main")
    table = sa.Table("orm", sa.MetaData(), sa.Column("id", sa.Integer), sa.Column("name", sa.String))
    with engine.connect() as made:
        table.create(made)
        made.execute(table.insert(), [{"id": 1, "name": "a"}, {"id": 2, "name": "it's"}])
        found = made.execute(sa.select(table.c.name).where(table.c.id == 2)).scalar_one()
        assert found == "it's"
        inspector = sa.inspect(made)
        assert "orm" in inspector.get_table_names(schema="main")
        assert [column["name"] for column in inspector.get_columns("orm", schema="main")] == ["id", "name"]
        assert inspector.has_table("orm", schema="main")
        table.drop(made)
    engine.dispose()
    running.assert_idle()


def test_passwords_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they would win over verify=
        monkeypatch.delenv(name, raising=False)
    authority = Authority(tmp_path)
    server = authority.server()
    yaml = f"""
queryflux:
  frontends:
    trinoHttp:
      host: 127.0.0.1
      port: 0
      tls: {{certFile: "{server.cert_file}", keyFile: "{server.key_file}"}}
  adminApi: {{host: 127.0.0.1, port: 0}}
auth:
  provider: static
  required: true
  staticUsers:
    users:
      ann: {{password: "right"}}
clusters: {{duck: {{engine: duckDb, databasePath: ":memory:"}}}}
clusterGroups: {{main: {{members: [duck]}}}}
routingFallback: main
"""
    with serving(yaml) as run:

        def ask(password: str) -> Any:
            made = connect(
                host="localhost",
                port=run.port("trinoHttp"),
                user="ann",
                http_scheme="https",
                auth=BasicAuthentication("ann", password),
                verify=str(authority.ca_file),
            )
            with closing(made):
                return rows(made, "SELECT n FROM UNNEST(sequence(1, 100000)) AS t(n)")

        assert len(ask("right")) == 100_000
        assert run.records[-1].username == "ann"
        with pytest.raises(Exception, match="401"):
            ask("wrong")
        run.assert_idle()
