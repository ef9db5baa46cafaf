"""Statements that ask the same question share a digest, and no value shows in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.sql.fingerprint import MAX_DIGEST_CHARS, fingerprint, mask_literals, signed_hash
from queryflux.sql.lexer import TRAITS, Token, tokens

DIALECTS = sorted(TRAITS)

DIGESTS = [
    ("SELECT 1", "select ?"),
    ("select  a , b FROM t -- note\n WHERE x='it''s' ;", "select a, b from t where x = ?"),
    ('select "A" from s.t where x = -1', 'select "A" from s.t where x = ?'),
    ("select x -1, a[1]", "select x - ?, a[?]"),
    ("select count(*) from t where x in (1, 2,3)", "select count(*) from t where x in (?)"),
    ("select f(x) from t where x in (1, -2, +3)", "select f(x) from t where x in (?)"),
    ("insert into t values (1, 'a'), (2, 'b')", "insert into t values (?)"),
    ("insert into t values (1, null), (default, 'b') , (TRUE, - 1)", "insert into t values (?)"),
    ("select a is null, 1 from t", "select a is null, ? from t"),
    ("select * from t where a = $1 and b = $2", "select * from t where a = ? and b = ?"),
    ("select x::text, date '2020-01-01'", "select x::text, date ?"),
    ("select $q$ text $q$, E'\\'', 1.5e-3, 0xFF, 0b11, .5", "select ?"),
    ("select 'a' /* x /* y */ 'z' */ , b", "select ?, b"),
    ("select t1.c2 from t1", "select t1.c2 from t1"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "digest"), DIGESTS)
def test_digest_text(text: str, digest: str) -> None:
    assert fingerprint(text, "postgres").digest_text == digest


def test_values_count_in_one_hash_and_not_in_the_other() -> None:
    one, two = (fingerprint(f"select * from t where x = {n}", "trino") for n in (1, 2))
    assert one.query_hash != two.query_hash
    assert one.parameterized_hash == two.parameterized_hash
    shouted = fingerprint("SELECT *\nFROM T WHERE X=1;", "trino")
    assert shouted.parameterized_hash == one.parameterized_hash
    assert shouted.query_hash != one.query_hash
    other = fingerprint("select * from t where y = 1", "trino")
    assert other.parameterized_hash != one.parameterized_hash


def test_a_mysql_string_in_double_quotes_is_a_value() -> None:
    assert fingerprint('select "a"', "mysql").digest_text == "select ?"
    assert fingerprint('select "a"', "trino").digest_text == 'select "a"'


def test_hashes_are_signed_64_bit() -> None:
    hashes = [signed_hash(str(n)) for n in range(100)]
    assert min(hashes) < 0 < max(hashes)
    assert all(-(1 << 63) <= value < 1 << 63 for value in hashes)


UNCLOSED = [
    ("select 'secret", "postgres"),
    ("select 'it's secret'", "postgres"),
    ('select "secret', "trino"),
    ("select `secret", "mysql"),
    ("select $q$ secret $p$", "postgres"),
    ("select /* secret", "trino"),
    ("select /* /* */ secret", "postgres"),
    ("select 'secret\\'", "mysql"),
    ("select E'secret\\'", "postgres"),
]


@pytest.mark.parametrize(("text", "dialect"), UNCLOSED)
def test_what_cannot_be_cut_into_tokens_has_only_the_hash_of_its_text(text: str, dialect: str) -> None:
    assert mask_literals(text, dialect) is None
    assert fingerprint(text, dialect) == (signed_hash(text), None, None)


CLOSED = [
    ("select 'a' -- 'b", "postgres"),
    ("select 1 # 'b", "mysql"),
    ("select a$b, $1", "postgres"),
    ("select /* /* */ 1", "trino"),
    ("select /*!80000 1 */", "mysql"),
    ("select 1\n\n", "trino"),
    ("select '\n'", "trino"),
]


@pytest.mark.parametrize(("text", "dialect"), CLOSED)
def test_what_is_closed_has_a_digest(text: str, dialect: str) -> None:
    assert mask_literals(text, dialect) is not None
    assert fingerprint(text, dialect).digest_text


def test_a_huge_statement_has_a_short_digest_and_an_exact_hash() -> None:
    rows = ", ".join(f"({n}, 'x')" for n in range(20_000))
    one = fingerprint(f"insert into t values {rows}", "postgres")
    two = fingerprint(f"insert into t values {rows[:-5]} 'y')", "postgres")
    assert one.digest_text == "insert into t values (?)"
    assert one.query_hash != two.query_hash
    assert one.parameterized_hash == two.parameterized_hash


def test_two_long_statements_that_differ_late_have_two_digests() -> None:
    columns = ", ".join(f"c{n}" for n in range(5000))
    one = fingerprint(f"select {columns} from a", "postgres")
    two = fingerprint(f"select {columns} from b", "postgres")
    assert one.digest_text == two.digest_text
    assert len(one.digest_text or "") <= MAX_DIGEST_CHARS
    assert one.parameterized_hash != two.parameterized_hash


def test_where_a_long_list_was_cut_does_not_show() -> None:
    text = "insert into t values " + ", ".join(f"({n}, 'value {n}')" for n in range(1000))
    cuts = {fingerprint(text[:end], "postgres", cut=True)[1:] for end in range(5000, 5100)}
    assert len(cuts) == 1
    assert cuts.pop()[1] == "insert into t values (?) ..."


def test_masking_keeps_the_rest() -> None:
    masked = mask_literals("SELECT a,  'secret' FROM t /* 'x' */ WHERE b2 = 42 -- y", "postgres")
    assert masked == "SELECT a,  ? FROM t   WHERE b2 = ?  "


PIECES = """
' '' " ` $ $$ $a$ E' e' x' u&' -- # /* */ /*! \\ \\' ; ( ) , ? :: : @ @@ . - + 1 .5 1e5 0x a a1 select null in
values ü
"""
odd_sql = st.lists(
    st.one_of(st.sampled_from([*PIECES.split(), " ", "\n", "\x00", "\ud800"]), st.text(max_size=4)),
    max_size=40,
).map("".join)


@given(odd_sql, st.sampled_from(DIALECTS), st.booleans())
def test_any_text_has_digests(text: str, dialect: str, cut: bool) -> None:
    found = fingerprint(text, dialect, cut=cut)
    assert found == fingerprint(text, dialect, cut=cut)
    assert (found.digest_text is None) == (found.parameterized_hash is None)
    assert len(found.digest_text or "") <= MAX_DIGEST_CHARS + len(" ...")
    if not cut:
        assert (mask_literals(text, dialect) is None) == (found.digest_text is None)


@given(odd_sql, st.sampled_from(DIALECTS))
def test_a_masked_text_holds_no_value(text: str, dialect: str) -> None:
    masked = mask_literals(text, dialect)
    if masked is not None:
        assert not {kind for kind, _, _ in tokens(masked, dialect)} & {Token.STRING, Token.NUMBER}


@given(st.text(max_size=30), st.sampled_from(DIALECTS))
def test_a_quoted_value_does_not_show(value: str, dialect: str) -> None:
    quoted = "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    assert mask_literals(f"select {quoted}, b", dialect) == "select ?, b"
    assert fingerprint(f"select {quoted}, b", dialect).digest_text == "select ?, b"


@given(st.integers(min_value=0, max_value=1 << 70), st.sampled_from(DIALECTS))
def test_a_number_does_not_show(value: int, dialect: str) -> None:
    assert mask_literals(f"select {value}, a{value} from t where x={value}.{value}", dialect) == (
        f"select ?, a{value} from t where x=?"
    )
