"""The MySQL door as its clients see it: PyMySQL, SQLAlchemy and the mysql CLI, over DuckDB."""

import datetime as dt
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from queryflux.auth.scram import scram_verifier
from queryflux.auth.sha2 import caching_sha2_hash
from queryflux.model.endings import EndReason
from tests.kit.pki import Authority
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

MYSQL = shutil.which("mysql") or shutil.which("mariadb")
needs_cli = pytest.mark.skipif(MYSQL is None, reason="no mysql or mariadb command (mariadb-client)")

CLUSTER = """
clusters:
  duck: {engine: duckDb}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""
HOUSE = """
queryflux:
  frontends:
    trinoHttp: {enabled: false}
    mysqlWire: {host: 127.0.0.1, port: 0%s}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: warning}
"""
PASSWORD = "pä:ss".encode()
"""PyMySQL sends a string as Latin-1, the mysql CLI as it was typed."""
SLOW = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"


@pytest.fixture(scope="module")
def place() -> Iterator[Serving]:
    with serving(HOUSE % "" + CLUSTER) as running:
        yield running
        running.assert_idle()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[Serving]:
    """Users with passwords of every form, and TLS."""
    made = authority.server()
    tls = f", tls: {{certFile: {made.cert_file}, keyFile: {made.key_file}}}"
    bcrypt = pytest.importorskip("bcrypt")
    slow = bcrypt.hashpw(PASSWORD, bcrypt.gensalt(4)).decode()
    users = f"""
auth:
  provider: static
  required: true
  staticUsers:
    users:
      plain: {{password: "pä:ss"}}
      slow: {{password: "{slow}"}}
      sha2: {{password: "0x{caching_sha2_hash("pä:ss").encode("latin-1").hex()}"}}
"""
    with serving(HOUSE % tls + users + CLUSTER) as running:
        yield running
        running.assert_idle()


def connect(place: Serving, **settings: Any) -> Any:
    """A PyMySQL connection."""
    arguments = {"user": "ann", "autocommit": True, **settings}
    return pymysql.connect(host="127.0.0.1", port=place.port("mysqlWire"), **arguments)


def fetch(connection: Any, text: str, arguments: object = None) -> list[Any]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(text, arguments)
        return list(cursor.fetchall())


def test_values_of_every_type_arrive_as_themselves(place: Serving) -> None:
    expected = {
        "true": 1,
        "CAST(-128 AS TINYINT)": -128,
        "CAST(18446744073709551615 AS UBIGINT)": 18446744073709551615,
        "CAST('170141183460469231731687303715884105727' AS HUGEINT)": None,
        "CAST(1.5 AS DECIMAL(38, 10))": Decimal("1.5000000000"),
        "CAST(0.1 AS FLOAT)": 0.1,
        "CAST(0.1 AS DOUBLE)": 0.1,
        "'hé 🌍'": "hé 🌍",
        "''": "",
        "NULL": None,
        "DATE '2024-02-29'": dt.date(2024, 2, 29),
        "TIMESTAMP '2024-02-29 01:02:03.000004'": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        "CAST('01:02:03.5' AS TIME)": dt.timedelta(hours=1, minutes=2, seconds=3.5),
    }
    with closing(connect(place)) as connection:
        row = fetch(connection, "SELECT " + ", ".join(expected))[0]
    for (text, value), found in zip(expected.items(), row, strict=True):
        if "HUGEINT" in text:
            assert found == Decimal("170141183460469231731687303715884105727")
        else:
            assert found == value, text


def test_parameters_and_many_rows(place: Serving) -> None:
    with closing(connect(place)) as connection:
        assert fetch(connection, "SELECT %s, %s, %s", (1, "o'x\\y", None)) == [(1, "o'x\\y", None)]
        rows = fetch(connection, "SELECT range AS n FROM range(100000)")
        assert rows == [(index,) for index in range(100_000)]


def test_a_cursor_that_streams(place: Serving) -> None:
    connection = connect(place, cursorclass=pymysql.cursors.SSCursor)
    cursor = connection.cursor()
    cursor.execute("SELECT range FROM range(10000000)")
    assert [cursor.fetchone() for _ in range(3)] == [(0,), (1,), (2,)]
    assert place.standalone.pipeline.running
    connection._force_close()
    cursor._result.unbuffered_active = False  # or it would read the rest when it is collected
    place.wait_for(lambda: not place.standalone.pipeline.running)
    assert place.records[-1].reason is EndReason.CLIENT_GONE


@pytest.mark.parametrize(
    ("text", "number", "kind"),
    [
        ("SELEC 1", 1064, pymysql.err.ProgrammingError),
        ("SELECT * FROM nowhere", 1146, pymysql.err.ProgrammingError),
        ("SELECT nothing FROM range(1)", 1054, pymysql.err.OperationalError),
    ],
)
def test_errors_have_their_numbers_and_the_connection_goes_on(
    place: Serving, text: str, number: int, kind: type[Exception]
) -> None:
    with closing(connect(place)) as connection:
        with pytest.raises(kind) as caught:
            fetch(connection, text)
        assert caught.value.args[0] == number
        assert fetch(connection, "SELECT 1") == [(1,)]


def test_a_transaction_is_rolled_back(place: Serving) -> None:
    with closing(connect(place, autocommit=False)) as connection:
        fetch(connection, "CREATE TABLE kept (a INTEGER)")
        connection.commit()
        fetch(connection, "INSERT INTO kept VALUES (1)")
        connection.rollback()
        assert fetch(connection, "SELECT count(*) FROM kept") == [(0,)]
        with connection.cursor() as cursor:
            assert cursor.execute("INSERT INTO kept VALUES (1), (2)") == 2
        connection.commit()
    with closing(connect(place)) as connection:
        assert fetch(connection, "SELECT count(*) FROM kept") == [(2,)]
        fetch(connection, "DROP TABLE kept")


def test_pymysql_as_it_comes_goes_on_after_errors(place: Serving) -> None:
    """Its default is autocommit=0."""
    with closing(connect(place, autocommit=False)) as connection:
        for failing in ("SELEC 1", "INSERT INTO nowhere VALUES (1)", "CREATE TABLE a.b.c.d (x INT)"):
            with pytest.raises(pymysql.MySQLError):
                fetch(connection, failing)
            assert fetch(connection, "SELECT 1") == [(1,)]
        fetch(connection, "CREATE TABLE undone (x INT)")
        with pytest.raises(pymysql.MySQLError, match="The transaction was rolled back"):
            fetch(connection, "SELECT * FROM nowhere")
        with pytest.raises(pymysql.MySQLError, match="undone"):
            fetch(connection, "SELECT * FROM undone")
        fetch(connection, "CREATE TABLE done (x INT)")
        connection.commit()
        assert fetch(connection, "SELECT * FROM done") == []


def test_databases_by_name(place: Serving) -> None:
    with closing(connect(place)) as connection:
        with pytest.raises(pymysql.err.OperationalError, match="Unknown database 'nonsense'") as caught:
            connection.select_db("nonsense")
        assert caught.value.args[0] == 1049
        fetch(connection, "CREATE SCHEMA made_now")
        fetch(connection, "USE made_now")
        assert fetch(connection, "SHOW TABLES") == []
        fetch(connection, "DROP SCHEMA made_now")
    with (
        closing(connect(place, database="nonsense")) as connection,
        pytest.raises(pymysql.err.OperationalError, match=r"there are: .*main"),
    ):
        fetch(connection, "SHOW TABLES")


def test_kill_query_from_a_second_connection(place: Serving) -> None:
    with closing(connect(place)) as victim, closing(connect(place)) as killer:
        number = victim.thread_id()
        caught: list[Exception] = []

        def run() -> None:
            try:
                fetch(victim, SLOW)
            except pymysql.err.OperationalError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        place.wait_for(lambda: bool(place.standalone.pipeline.running))
        fetch(killer, f"KILL QUERY {number}")
        thread.join(10)
        assert caught[0].args[0] == 1317
        assert fetch(victim, "SELECT 1") == [(1,)]
    place.assert_idle()


def test_a_client_that_vanishes_frees_everything(place: Serving) -> None:
    connection = connect(place)
    connection._execute_command(3, SLOW)
    place.wait_for(lambda: bool(place.standalone.pipeline.running))
    connection._force_close()
    place.assert_idle()
    assert place.records[-1].reason is EndReason.CLIENT_GONE


def test_sqlalchemy(place: Serving) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"mysql+pymysql://ann@127.0.0.1:{place.port('mysqlWire')}/main")
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT :a + 1"), {"a": 41}).scalar_one() == 42
        connection.exec_driver_sql("CREATE TABLE alchemy (id INTEGER NOT NULL, name VARCHAR(20))")
        connection.commit()
        assert "alchemy" in sqlalchemy.inspect(connection).get_table_names()
        columns = sqlalchemy.inspect(connection).get_columns("alchemy")
        assert [column["name"] for column in columns] == ["id", "name"]
        connection.exec_driver_sql("DROP TABLE alchemy")
        connection.commit()
    engine.dispose()


def test_sqlalchemy_reflects_a_folder_by_its_name(tmp_path: Path) -> None:
    import duckdb

    sqlalchemy = pytest.importorskip("sqlalchemy")
    folder = tmp_path / "files"
    folder.mkdir()
    with closing(duckdb.connect()) as writer:
        writer.execute(f"COPY (SELECT 1 AS id, 'a' AS v) TO '{folder / 't.parquet'}'")
    with serving(HOUSE % "" + CLUSTER.replace("duckDb", f'duckDb, dataPath: "{folder}"')) as running:
        engine = sqlalchemy.create_engine(f"mysql+pymysql://ann@127.0.0.1:{running.port('mysqlWire')}/files")
        for schema in (None, "files", "main"):
            found = sqlalchemy.inspect(engine)
            assert found.default_schema_name == "files"
            assert found.get_table_names(schema) == ["t"]
            assert found.has_table("t", schema)
            assert not found.has_table("nowhere", schema)
            assert [column["name"] for column in found.get_columns("t", schema)] == ["id", "v"]
        reflected = sqlalchemy.MetaData()
        reflected.reflect(engine)
        with engine.connect() as connection:
            assert connection.execute(reflected.tables["t"].select()).all() == [(1, "a")]
            assert connection.exec_driver_sql("SELECT * FROM files.t").all() == [(1, "a")]
        engine.dispose()


def test_the_id_of_an_inserted_row_is_the_clients_to_give(place: Serving) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session, registry

    table = sqlalchemy.Table(
        "keyed",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True),
        sqlalchemy.Column("name", sqlalchemy.String(20)),
    )
    row = type("Row", (), {})
    registry().map_imperatively(row, table)
    engine = sqlalchemy.create_engine(f"mysql+pymysql://ann@127.0.0.1:{place.port('mysqlWire')}/main")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE keys START 5")
        connection.exec_driver_sql(
            "CREATE TABLE keyed (id INTEGER DEFAULT nextval('keys'), name VARCHAR(20))"
        )
        assert connection.exec_driver_sql("INSERT INTO keyed (name) VALUES ('a')").lastrowid == 0
        connection.commit()
    with Session(engine) as session:
        given: Any = row()
        given.id, given.name = 70, "b"
        session.add(given)
        session.commit()
        assert (given.id, given.name) == (70, "b")
    with engine.connect() as connection:
        assert connection.execute(table.select().order_by(table.c.id)).all() == [(5, "a"), (70, "b")]
        connection.exec_driver_sql("DROP TABLE keyed")
        connection.exec_driver_sql("DROP SEQUENCE keys")
        connection.commit()
    engine.dispose()


@pytest.mark.parametrize("user", ["plain", "slow", "sha2"])
@pytest.mark.parametrize("tls", [True, False])
def test_passwords_of_every_form(guarded: Serving, authority: Authority, user: str, tls: bool) -> None:
    ssl = {"ca": str(authority.ca_file)} if tls else None
    for _ in range(2):
        with closing(connect(guarded, user=user, password=PASSWORD, ssl=ssl)) as connection:
            assert fetch(connection, "SELECT USER(), 1") == [(f"{user}@127.0.0.1", 1)]
            rows = fetch(connection, "SELECT range, repeat('x', 100) FROM range(20000)")
            assert rows[-1] == (19_999, "x" * 100)
    with pytest.raises(pymysql.err.OperationalError) as caught:
        connect(guarded, user=user, password="wrong", ssl=ssl)
    assert caught.value.args[0] == 1045


# The command line client.


def cli(place: Serving, *arguments: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the CLI, without the machine's own option files."""
    assert MYSQL is not None
    port = place.port("mysqlWire")
    command = [MYSQL, "--no-defaults", "-h127.0.0.1", f"-P{port}", "-uann", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


@needs_cli
def test_the_cli_in_ordinary_use(place: Serving) -> None:
    script = """
        CREATE TABLE t (a INTEGER, b VARCHAR(10));
        INSERT INTO t VALUES (1, 'x'), (2, NULL);
        SELECT * FROM t ORDER BY a;
        SHOW TABLES;
        DESCRIBE t;
        USE information_schema;
        SELECT DATABASE();
        DROP TABLE main.t;
    """
    done = cli(place, "main", "-t", text=script)
    assert done.returncode == 0, done.stderr
    assert "|    1 | x    |" in done.stdout
    assert "|    2 | NULL |" in done.stdout
    assert "information_schema" in done.stdout
    assert re.search(r"\| a +\| int", done.stdout), done.stdout


@needs_cli
def test_the_cli_shows_errors_and_warnings(place: Serving) -> None:
    done = cli(place, "--force", text="SELECT * FROM nowhere;\nSHOW WARNINGS;\nSELECT 7 AS x;\n")
    assert "ERROR 1146 (42S02)" in done.stderr
    assert "Error\t1146\t" in done.stdout
    assert done.stdout.endswith("x\n7\n")


@needs_cli
@pytest.mark.parametrize(
    "more", [["--skip-ssl"], ["--ssl"], ["--ssl", "--default-auth=mysql_clear_password"]], ids=str
)
@pytest.mark.parametrize("user", ["plain", "slow", "sha2"])
def test_the_cli_logs_in(guarded: Serving, authority: Authority, more: list[str], user: str) -> None:
    arguments = [f"-u{user}", "-ppä:ss", f"--ssl-ca={authority.ca_file}", *more, "-N", "-e", "SELECT USER()"]
    if "--skip-ssl" in more:
        arguments.remove(f"--ssl-ca={authority.ca_file}")
    done = cli(guarded, *arguments)
    assert (done.stdout, done.returncode) == (f"{user}@127.0.0.1\n", 0), done.stderr
    refused = cli(guarded, f"-u{user}", "-pwrong", *more, "-e", "SELECT 1")
    assert "ERROR 1045 (28000)" in refused.stderr
    assert refused.stdout == ""


@needs_cli
def test_the_cli_encrypts_a_password_where_there_is_no_tls() -> None:
    """MariaDB's does only when it was told to do without TLS. Else it sends it in clear."""
    users = f"""
auth:
  provider: static
  staticUsers:
    users:
      verified: {{password: "{scram_verifier("s3cret")}"}}
"""
    with serving(HOUSE % "" + users + CLUSTER) as place:
        arguments = ("-uverified", "-ps3cret", "-N", "-e", "SELECT USER()")
        refused = cli(place, *arguments)
        assert "ERROR 1045 (28000)" in refused.stderr
        assert "with --skip-ssl; this door has no TLS: give its listener tls" in refused.stderr
        done = cli(place, *arguments, "--skip-ssl")
        assert (done.stdout, done.returncode) == ("verified@127.0.0.1\n", 0), done.stderr
        # Fast from the second login on, whatever the client thinks of TLS.
        done = cli(place, *arguments)
        assert (done.stdout, done.returncode) == ("verified@127.0.0.1\n", 0), done.stderr


@needs_cli
@pytest.mark.parametrize(
    "plugin", ["", "caching_sha2_password", "mysql_native_password", "mysql_clear_password"]
)
@pytest.mark.parametrize("password", [[], ["-psecret"]], ids=["none", "any"])
@pytest.mark.parametrize("ssl", [[], ["--skip-ssl"]], ids=["ssl", "skip-ssl"])
def test_the_cli_logs_in_where_nothing_is_proved(
    place: Serving, plugin: str, password: list[str], ssl: list[str]
) -> None:
    more = [f"--default-auth={plugin}"] if plugin else []
    done = cli(place, *password, *more, *ssl, "main", "-N", "-e", "SELECT USER()")
    assert (done.stdout, done.returncode) == ("ann@127.0.0.1\n", 0), done.stderr


class Terminal:
    """The CLI on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.execvp(command[0], command)
        self.seen = ""

    def type(self, text: str) -> None:
        """Type something; \\x03 is Ctrl-C."""
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str, seconds: float = 20) -> None:
        """Return when the terminal shows ``text`` after what was waited for before."""
        ends = time.monotonic() + seconds
        while text not in self.seen:
            left = ends - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self.seen!r}"
            if select.select([self._terminal], [], [], left)[0]:
                self.seen += os.read(self._terminal, 65536).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


@needs_cli
def test_ctrl_c_in_the_cli_cancels_the_statement_alone(place: Serving) -> None:
    assert MYSQL is not None
    port = place.port("mysqlWire")
    terminal = Terminal([MYSQL, "--no-defaults", "-h127.0.0.1", f"-P{port}", "-uann", "--prompt=ready> "])
    try:
        terminal.wait_for("ready> ")
        terminal.type(SLOW + ";\n")
        place.wait_for(lambda: bool(place.standalone.pipeline.running))
        terminal.type("\x03")
        terminal.wait_for("ERROR 1317 (70100)")
        terminal.wait_for("ready> ")
        terminal.type("SELECT 40 + 2;\n")
        terminal.wait_for("42")
    finally:
        terminal.close()
    place.assert_idle()
    assert EndReason.CANCELLED in [record.reason for record in place.records]


def test_nothing_of_many_clients_is_left(place: Serving) -> None:
    def work(index: int) -> None:
        connection = connect(place)
        if index % 3 == 0:
            connection._execute_command(3, SLOW)
            connection._force_close()
            return
        with closing(connection):
            fetch(connection, "SELECT 1")

    _in_threads(work, 40)
    place.assert_idle()
    door = place.standalone.doors["mysqlWire"]
    place.wait_for(lambda: door.listener.connections == 0)  # type: ignore[attr-defined]


def _in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
