"""Statements that ask the same question share a digest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.sql.fingerprint import MAX_DIGEST_CHARS, fingerprint, mask_literals, signed_hash

DIGESTS = [
    ("SELECT 1", "select ?"),
    ("select  a , b FROM t -- note\n WHERE x='it''s' ;", "select a, b from t where x = ?"),
    ('select "A" from s.t where x = -1', 'select "A" from s.t where x = ?'),
    ("select x -1, a[1]", "select x - ?, a[?]"),
    ("select count(*) from t where x in (1, 2,3)", "select count(*) from t where x in (?)"),
    ("insert into t values (1, 'a'), (2, 'b')", "insert into t values (?)"),
    ("select * from t where a = $1 and b = $2", "select * from t where a = ? and b = ?"),
    ("select x::text, date '2020-01-01'", "select x::text, date ?"),
    ("select $q$ text $q$, E'\\'', 1.5e-3, 0xFF", "select ?"),
]


@pytest.mark.parametrize(("text", "digest"), DIGESTS)
def test_digest_text(text: str, digest: str) -> None:
    assert fingerprint(text, "postgres").digest_text == digest


def test_literals_count_in_one_hash_and_not_in_the_other() -> None:
    one, two = (fingerprint(f"select * from t where x = {n}", "trino") for n in (1, 2))
    assert one.query_hash != two.query_hash
    assert one.query_parameterized_hash == two.query_parameterized_hash
    assert fingerprint("SELECT *\nFROM T WHERE X=1;", "trino") == one


def test_a_mysql_string_in_double_quotes_is_a_literal() -> None:
    assert fingerprint('select "a"', "mysql").digest_text == "select ?"
    assert fingerprint('select "a"', "trino").digest_text == 'select "a"'


def test_hashes_are_signed_64_bit() -> None:
    hashes = [signed_hash(str(n)) for n in range(100)]
    assert min(hashes) < 0 < max(hashes)
    assert all(-(1 << 63) <= value < 1 << 63 for value in hashes)


def test_a_huge_statement_has_a_short_digest_and_an_exact_hash() -> None:
    rows = ", ".join(f"({n}, 'x')" for n in range(20_000))
    one = fingerprint(f"insert into t values {rows}", "postgres")
    two = fingerprint(f"insert into t values {rows[:-5]} 'y')", "postgres")
    assert len(one.digest_text) <= MAX_DIGEST_CHARS
    assert one.query_hash != two.query_hash
    assert one.query_parameterized_hash == two.query_parameterized_hash


def test_masking_keeps_the_rest() -> None:
    masked = mask_literals("SELECT a,  'secret' FROM t /* 'x' */ WHERE b = 42", "postgres")
    assert masked == "SELECT a,  ? FROM t   WHERE b = ?"


@given(st.text(max_size=60), st.sampled_from(["postgres", "mysql", "trino", ""]))
def test_any_text_has_digests(text: str, dialect: str) -> None:
    assert fingerprint(text, dialect) == fingerprint(text, dialect)
    mask_literals(text, dialect)


@given(st.text(max_size=30).map(lambda s: s.replace("\x00", "")))
def test_a_masked_string_does_not_show(value: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"
    assert mask_literals(f"select {quoted}", "postgres") == "select ?"
