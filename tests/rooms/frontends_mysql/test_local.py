"""What is read as being about the connection, and what is left to engines."""

import threading
from typing import Any

import pytest

from queryflux.frontends.mysql.encoding import LONG_TEXT, EncodingThreads
from queryflux.frontends.mysql.expressions import (
    Call,
    Literal,
    SystemVariable,
    UserVariable,
    evaluate,
    placeholders,
    substitute,
)
from queryflux.frontends.mysql.local import (
    Assignment,
    Default,
    Kill,
    NameFilter,
    SelectItems,
    SetVariables,
    ShowCharacterSets,
    ShowDiagnostics,
    ShowProcesses,
    ShowVariables,
    UseDatabase,
    like,
    read_local,
)
from queryflux.sql.classify import classify
from queryflux.wire.mysql.errors import ServerError


def read(text: str) -> Any:
    return read_local(text, classify(text, "mysql").kind)


def system(name: str, globally: bool = False) -> SystemVariable:
    return SystemVariable(name, globally)


def pairs(text: str) -> list[tuple[object, object]]:
    found = read(text)
    assert isinstance(found, SetVariables)
    return [(item.target, item.value) for item in found.assignments]


@pytest.mark.parametrize(
    ("text", "names", "expressions"),
    [
        ("SELECT @@version_comment LIMIT 1", ["@@version_comment"], [system("version_comment")]),
        ("select DATABASE(), USER() limit 1", ["DATABASE()", "USER()"], [Call("DATABASE"), Call("USER")]),
        (
            "/* connector-j */SELECT  @@session.auto_increment_increment AS a, @@global.wait_timeout AS `b`",
            ["a", "b"],
            [system("auto_increment_increment"), system("wait_timeout", True)],
        ),
        ("SELECT @x", ["@x"], [UserVariable("x")]),
        ("SELECT CURRENT_USER", ["CURRENT_USER"], [Call("CURRENT_USER")]),
        ("SELECT VERSION() 'v' FROM dual;", ["v"], [Call("VERSION")]),
        ("SELECT @@a, 1 AS one, 'x'", ["@@a", "one", "'x'"], [system("a"), Literal(1), Literal("x")]),
        (
            "SELECT CONCAT(@@version, ' ', USER()) AS w",
            ["w"],
            [Call("CONCAT", (system("version"), Literal(" "), Call("USER")))],
        ),
        ("SELECT @@`sql_mode`", ["@@`sql_mode`"], [system("sql_mode")]),
        ("/*!50000 SELECT @@a */", ["@@a"], [system("a")]),
    ],
)
def test_selects_about_the_connection(text: str, names: list[str], expressions: list[object]) -> None:
    found = read(text)
    assert isinstance(found, SelectItems)
    assert list(found.names) == names
    assert list(found.expressions) == expressions


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 'DATABASE()'",
        "SELECT user FROM users",
        "SELECT @@version FROM t",
        "SELECT @a := 1",
        "SELECT @@version + 1",
        "SELECT NOW(), @@version",
        "SELECT DATABASE() WHERE 1",
        "SELECT 'unclosed @@a",
        "SELECT '@@version'",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
        "SHOW TABLES",
        "SHOW DATABASES",
        "SHOW CREATE TABLE t",
        "SHOW COLUMNS FROM t",
        "SHOW FULL TABLES LIKE 'x'",
        "SHOW STATUS EXTRA",
        "INSERT INTO t VALUES (@@version)",
        "USE a b",
        "KILL",
        "PRAGMA threads=1",
        "SELECT " + "(" * 50 + "@@a" + ")" * 50,
        "SELECT @@a" + " " * 5000,
    ],
)
def test_everything_else_goes_to_an_engine(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET autocommit=1", [(system("autocommit"), Literal(1))]),
        ("SET @@session.autocommit := OFF", [(system("autocommit"), Literal("OFF"))]),
        (
            "SET SESSION wait_timeout = 5, @a = 'x''y'",
            [(system("wait_timeout"), Literal(5)), (UserVariable("a"), Literal("x'y"))],
        ),
        ("SET LOCAL `sql_mode` = DEFAULT", [(system("sql_mode"), Default())]),
        (
            "SET sql_mode=(SELECT CONCAT(@@sql_mode, ',ONLY_FULL_GROUP_BY'))",
            [
                (
                    system("sql_mode"),
                    Call("CONCAT", (system("sql_mode"), Literal(",ONLY_FULL_GROUP_BY"))),
                )
            ],
        ),
        (
            "SET sql_mode=(SELECT REPLACE(@@sql_mode,'ONLY_FULL_GROUP_BY',''))",
            [
                (
                    system("sql_mode"),
                    Call("REPLACE", (system("sql_mode"), Literal("ONLY_FULL_GROUP_BY"), Literal(""))),
                )
            ],
        ),
        ("SET SESSION query_tags = 'team:eng'", [(system("query_tags"), Literal("team:eng"))]),
        ("SET agent.id = 7", [(system("agent.id"), Literal(7))]),
        ("SET x = -1", [(system("x"), Literal(-1))]),
        ("/*!40101 SET @OLD=@@TIME_ZONE */", [(UserVariable("old"), system("time_zone"))]),
        ("SET character_set_results = NULL", [(system("character_set_results"), Literal(None))]),
        ("SET TRANSACTION READ ONLY", [(system("transaction_read_only"), Literal("1"))]),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
            [
                (system("transaction_isolation"), Literal("READ-COMMITTED")),
                (system("transaction_read_only"), Literal("0")),
            ],
        ),
    ],
)
def test_set(text: str, expected: list[tuple[object, object]]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize(
    "text", ["SET", "SET x", "SET x = (SELECT 1 FROM t)", "SET @a = NOW()", "SET a = 1 b"]
)
def test_what_cannot_be_set_here_is_told_and_not_sent_to_an_engine(text: str) -> None:
    with pytest.raises(ServerError) as caught:
        read(text)
    assert caught.value.number == 1235


class Around:
    """Surroundings in which every variable is ``a,b``."""

    def system_variable(self, name: str, globally: bool) -> str:
        return "a,b"

    def user_variable(self, name: str) -> None:
        return None

    def function(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CONCAT(@@x, IF(LOCATE('*', @@x) > 0 OR FIND_IN_SET('B', @@x) > 0, ',c', ''))", "a,b,c"),
        ("CONCAT_WS('-', 'a', @none, 3)", "a-3"),
        ("REPLACE(@@x, 'a,', '')", "b"),
        ("IFNULL(@none, UPPER(LOWER('X')))", "X"),
        ("COALESCE(@none, TRIM(' y '))", "y"),
        ("NULLIF(1, '1')", None),
        ("NULLIF('a', 'b')", "a"),
        ("CONCAT('a', @none)", None),
        ("@none = 1", None),
        ("'A' = 'a' AND 2 <> 1 AND 1 != 2", 1),
        ("1 < 2 AND 2 <= 2 AND 3 > '2' AND 3 >= 3", 1),
        ("1 = 2 OR @none", None),
        ("@none AND 0", 0),
        ("@none AND 1", None),
        ("0 OR 'x'", 0),
        ("DATABASE()", "DATABASE"),
        ("(SELECT (-5))", -5),
    ],
)
def test_what_expressions_give(text: str, value: object) -> None:
    ((_, expression),) = pairs(f"SET @a = {text}")
    assert evaluate(expression, Around()) == value  # type: ignore[arg-type]


def test_names_and_transactions_in_a_list() -> None:
    text = "SET autocommit=1, names utf8mb4, @a = 1, SESSION TRANSACTION READ WRITE"
    names = [target.name for target, _ in pairs(text)]  # type: ignore[attr-defined]
    assert names == [
        "autocommit",
        "character_set_client",
        "character_set_connection",
        "character_set_results",
        "a",
        "transaction_read_only",
    ]


def test_set_names_is_three_variables_and_a_collation() -> None:
    names = ["character_set_client", "character_set_connection", "character_set_results"]
    expected: list[tuple[object, object]] = [(system(name), Literal("utf8mb4")) for name in names]
    for text in ("SET NAMES utf8mb4", "SET NAMES 'utf8mb4'", "SET CHARACTER SET utf8mb4"):
        assert pairs(text) == expected
    collation = (system("collation_connection"), Literal("utf8mb4_bin"))
    assert pairs("SET NAMES utf8mb4 COLLATE utf8mb4_bin") == [*expected, collation]
    assert [value for _, value in pairs("SET NAMES DEFAULT")] == [Default()] * 3


@pytest.mark.parametrize(
    "text",
    [
        "SET GLOBAL wait_timeout = 1",
        "SET @@global.wait_timeout = 1",
        "SET PERSIST wait_timeout = 1",
        "SET GLOBAL TRANSACTION READ ONLY",
        "SET PASSWORD = 'x'",
    ],
)
def test_what_is_the_servers_cannot_be_set(text: str) -> None:
    with pytest.raises(ServerError) as caught:
        read(text)
    assert caught.value.number == 1227


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USE sales", UseDatabase("sales")),
        ("use `my``db`;", UseDatabase("my`db")),
        ("KILL QUERY 5", Kill(Literal(5), True)),
        ("KILL 5", Kill(Literal(5), False)),
        ("KILL CONNECTION CONNECTION_ID()", Kill(Call("CONNECTION_ID"), False)),
        ("SHOW WARNINGS", ShowDiagnostics()),
        ("SHOW WARNINGS LIMIT 10", ShowDiagnostics()),
        ("SHOW COUNT(*) ERRORS", ShowDiagnostics(True, True)),
        ("SHOW VARIABLES", ShowVariables()),
        ("SHOW GLOBAL VARIABLES LIKE 'A%'", ShowVariables(False, True, NameFilter(patterns=("a%",)))),
        (
            "SHOW VARIABLES WHERE Variable_name='a' OR Variable_name IN ('b','C') OR variable_name LIKE 'd_'",
            ShowVariables(only=NameFilter(frozenset({"a", "b", "c"}), ("d_",))),
        ),
        (
            "SHOW SESSION STATUS LIKE 'Ssl_cipher'",
            ShowVariables(True, False, NameFilter(patterns=("ssl_cipher",))),
        ),
        ("SHOW FULL PROCESSLIST", ShowProcesses()),
        ("SHOW COLLATION", ShowCharacterSets(True)),
        ("SHOW CHARACTER SET LIKE 'utf8%'", ShowCharacterSets()),
    ],
)
def test_the_rest(text: str, expected: object) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("", "", True),
        ("%", "", True),
        ("%", "abc", True),
        ("a%c", "abc", True),
        ("a%c", "abcd", False),
        ("_b_", "abc", True),
        ("%b%", "abc", True),
        ("%bd%", "abc", False),
        ("a\\_c", "a_c", True),
        ("a\\_c", "abc", False),
        ("%\\%", "50%", True),
        ("%a%b", "xaxaxb", True),
        ("abc", "ab", False),
        ("a_", "a", False),
    ],
)
def test_like(pattern: str, name: str, fits: bool) -> None:
    assert like(pattern, name) is fits


def test_like_takes_no_exponential_time() -> None:
    assert not like("%a" * 200 + "b", "a" * 2000)


def test_placeholders_outside_strings_and_comments() -> None:
    text = "SELECT ?, '?', \"?\", `?`, 'it''s ?', 'a\\'?' /* ? */ -- ?\n, ? # ?\n WHERE a = ? AND b = 'open ?"
    assert placeholders(text) == 3


@pytest.mark.parametrize("piece", ["(1, abc),", "('a?', \"b\"),", "- / ", "@", "/*", "`a", "--", "#"])
def test_tokens_of_long_texts(piece: str) -> None:
    assert placeholders(piece * 20_001) == 0
    assert placeholders("?," * 20_001) == 20_001


async def test_long_texts_are_read_on_a_thread() -> None:
    threads = EncodingThreads()
    here = threading.current_thread()
    on: list[bool] = []

    def read(text: str, mark: str) -> int:
        on.append(threading.current_thread() is here)
        return text.count(mark)

    assert await threads.read(read, "a?", "?") == 1
    assert await threads.read(read, "?" * LONG_TEXT, "?") == LONG_TEXT
    assert on == [True, False]
    await threads.close()


def test_variables_become_literals_outside_strings_and_comments() -> None:
    text = "SELECT @a, '@a', `@a`, @@x -- @a\n, @'b c', a@b.c FROM t"
    found: list[object] = []

    def literal(expression: object) -> str:
        found.append(expression)
        return "7"

    assert substitute(text, literal) == "SELECT 7, '@a', `@a`, 7 -- @a\n, 7, a7 FROM t"
    assert found == [UserVariable("a"), system("x"), UserVariable("b c"), UserVariable("b.c")]


def test_assignments_are_values() -> None:
    assert Assignment(system("a"), Literal(1)) == Assignment(system("a"), Literal(1))
