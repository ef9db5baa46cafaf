"""What a statement leaves behind in its session, by its text."""

import pytest

from queryflux.engines.postgres.effects import Effects, effects_of, leaves_nothing
from queryflux.wire.postgres.native import PLAIN_WORDS

NOTHING = [
    "SELECT 1",
    "select settings from offsets",
    "INSERT INTO t VALUES (1)",
    "BEGIN",
    "SET LOCAL work_mem = '1MB'",
    "set transaction isolation level serializable",
    "SET CONSTRAINTS ALL DEFERRED",
    "PREPARE TRANSACTION 'x'",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_try_advisory_xact_lock(1)",
    "SELECT pg_advisory_unlock_all()",
    "CREATE TABLE t (a int)",
    "DECLARE c CURSOR FOR SELECT 1",
    "CREATE TABLE temperature (a int)",
    "UPDATE t SET a = 1",
    "",
]
PINS = [
    "SET work_mem = '1MB'",
    "/* a */ -- b\n set work_mem = '1MB'",
    "SET SESSION work_mem = 1000",
    "SET search_path = a, b",
    "SET search_path = 'a, b'",
    "SET TIME ZONE DEFAULT",
    "SET timezone TO LOCAL",
    "SET timezone TO DEFAULT",
    "SET ROLE somebody",
    "SET SESSION AUTHORIZATION somebody",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SELECT set_config('a.b', 'c', false)",
    "LISTEN news",
    "LOAD 'library'",
    "PREPARE p AS SELECT 1",
    "CREATE TEMP TABLE t (a int)",
    "create local temporary table t (a int)",
    "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
    "SELECT 1 INTO TEMP t",
    "CREATE TABLE pg_temp.t (a int)",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_lock_shared(1)",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "SELECT 1; SET work_mem = '1MB'",
    "SET timezone = 'UTC'; SELECT 1",
]


@pytest.mark.parametrize("text", NOTHING)
def test_statements_that_leave_nothing(text: str) -> None:
    assert effects_of(text) is None


PLAIN = [
    "SELECT dblink_connect('a')",
    "select setseed(0.5)",
    "VALUES (set_config('a.b', 'c', false))",
    "INSERT INTO pg_temp.t VALUES (1)",
    "SELECT a INTO TEMPORARY b FROM c",
    "SELECT 1 -- /* set_config( */",
    *(text for text in NOTHING + PINS if text[:6].lower() in PLAIN_WORDS and ";" not in text),
]


@pytest.mark.parametrize("text", PLAIN)
def test_the_short_look_is_never_more_trusting(text: str) -> None:
    if leaves_nothing(text):
        assert effects_of(text) is None


def test_the_short_look_sees_the_plainest() -> None:
    assert leaves_nothing("SELECT abalance FROM pgbench_accounts WHERE aid = 1")
    assert leaves_nothing("UPDATE t SET a = 1")
    assert not leaves_nothing("SELECT SET_CONFIG('a.b', 'c', false)")


@pytest.mark.parametrize("text", PINS)
def test_statements_that_pin(text: str) -> None:
    found = effects_of(text)
    assert found is not None
    assert found.pins
    assert found.sets is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET timezone = 'UTC'", ("TimeZone", "UTC")),
        ("set session TimeZone to UTC;", ("TimeZone", "UTC")),
        ("SET TIME ZONE 'Europe/Paris'", ("TimeZone", "Europe/Paris")),
        ("SET extra_float_digits = 3", ("extra_float_digits", "3")),
        ("SET application_name = ''", ("application_name", "")),
        ("SET client_encoding TO 'UTF8'", ("client_encoding", "UTF8")),
        ("SET search_path TO public", ("search_path", "public")),
    ],
)
def test_settings_that_are_replayed(text: str, expected: tuple[str, str]) -> None:
    assert effects_of(text) == Effects(sets=expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DISCARD ALL", Effects(forgets=True, resets="all", discards=True)),
        ("DISCARD ALL; SET ROLE x", Effects(pins=True, forgets=True, resets="all")),
        ("DISCARD PLANS", Effects(forgets=True)),
        ("DEALLOCATE ALL", Effects(forgets=True)),
        ("DEALLOCATE p", Effects(forgets=True)),
        ("RESET ALL", Effects(resets="all")),
        ("reset timezone", Effects(resets="TimeZone")),
        ("RESET work_mem", None),
        ("COPY t FROM STDIN", Effects(copies=True)),
        ("/* x */ copy t to stdout", Effects(copies=True)),
    ],
)
def test_what_undoes(text: str, expected: Effects | None) -> None:
    assert effects_of(text) == expected


def test_many_comments_are_read_in_linear_time() -> None:
    assert effects_of("/* */" * 20_000 + "/* set") is None
    assert effects_of("-- set\n" * 20_000) is None


def test_a_long_text_is_looked_at_and_not_kept() -> None:
    text = "SELECT '" + "x" * 10_000 + "'; LISTEN a"
    assert effects_of(text) == Effects(pins=True)
