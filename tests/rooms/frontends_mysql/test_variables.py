"""Session variables: defaults, what is set is read back, and what is refused."""

import pytest

from queryflux.frontends.mysql.variables import SessionVariables
from queryflux.model.settings import MYSQL_DEFAULTS, shown
from queryflux.wire.mysql.errors import ServerError


def number_of(name: str, value: str | int | None) -> int:
    with pytest.raises(ServerError) as caught:
        SessionVariables().set(name, value)
    return caught.value.number


def test_what_is_set_is_read_back_and_travels_in_extra() -> None:
    variables = SessionVariables(port=3306)
    assert variables.get("autocommit") is True
    variables.set("AutoCommit", "OFF")
    variables.set("tx_isolation", "repeatable read")
    variables.set("wait_timeout", "0")
    variables.set("agent_id", "a-7")
    variables.set("sql_mode", "strict_trans_tables, ,NO_ZERO_DATE,NO_ZERO_DATE")
    assert variables.get("autocommit") is False
    assert variables.get("transaction_isolation") == "REPEATABLE-READ"
    assert variables.reads_are_transactional
    assert variables.number("wait_timeout") == 1
    assert variables.get("sql_mode") == "STRICT_TRANS_TABLES,NO_ZERO_DATE"
    assert variables.get("port") == 3306
    assert variables.extra() == {
        "port": "3306",
        "autocommit": "OFF",
        "transaction_isolation": "REPEATABLE-READ",
        "wait_timeout": "1",
        "agent_id": "a-7",
        "sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE",
    }
    assert variables.get("autocommit", globally=True) is True
    variables.reset("autocommit")
    assert variables.get("autocommit") is True
    variables.clear()
    assert variables.extra() == {"port": "3306"}


def test_a_name_that_nobody_has_set() -> None:
    with pytest.raises(ServerError, match="Unknown system variable 'nope'"):
        SessionVariables().get("nope")


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("version", "5", 1238),
        ("autocommit", "maybe", 1231),
        ("wait_timeout", "soon", 1231),
        ("wait_timeout", None, 1231),
        ("transaction_isolation", "CHAOS", 1231),
        ("sql_mode", "ANSI_QUOTES", 1231),
        ("sql_mode", "STRICT_ALL_TABLES,no_backslash_escapes", 1231),
        ("time_zone", "+02:00", 1298),
        ("time_zone", "Europe/Paris", 1298),
        ("character_set_client", "latin1", 1115),
        ("character_set_client", "binary", 1115),
        ("character_set_results", "gbk", 1115),
        ("character_set_connection", None, 1115),
        ("collation_connection", "latin1_swedish_ci", 1115),
    ],
)
def test_refused_values(name: str, value: str | int | None, number: int) -> None:
    assert number_of(name, value) == number


@pytest.mark.parametrize("zone", ["UTC", "SYSTEM", "+00:00"])
def test_utc_by_its_names(zone: str) -> None:
    variables = SessionVariables()
    variables.set("time_zone", zone)
    assert variables.get("time_zone") == zone


def test_no_results_character_set_means_none_is_converted() -> None:
    variables = SessionVariables()
    variables.set("character_set_results", None)
    assert variables.get("character_set_results") is None
    variables.set("character_set_results", "utf8")
    assert variables.get("character_set_results") == "utf8mb3"


def test_every_default_is_listed_in_order() -> None:
    names = [name for name, _ in SessionVariables().listed()]
    assert names == sorted(MYSQL_DEFAULTS)
    assert dict(SessionVariables().listed())["autocommit"] == "ON"
    assert shown(None) == ""
