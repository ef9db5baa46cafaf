"""``?`` as placeholders and as operators."""

import time

import pytest

from queryflux.frontends.flight_sql.marks import numbered


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT ?", "SELECT $1"),
        ("SELECT ?, ? + ?", "SELECT $1, $2 + $3"),
        ("from t where a = ? and b like ? limit ?", "from t where a = $1 and b like $2 limit $3"),
        ("INSERT INTO t VALUES (?, ?), (?,?)", "INSERT INTO t VALUES ($1, $2), ($3,$4)"),
        ("SELECT ?::int AS x, CAST(? AS text) y", "SELECT $1::int AS x, CAST($2 AS text) y"),
        ("SELECT ? x FROM t", "SELECT $1 x FROM t"),
        ("SELECT ? FROM t WHERE ? IS NOT NULL", "SELECT $1 FROM t WHERE $2 IS NOT NULL"),
        ("SELECT ?||'x', 'x'||?", "SELECT $1||'x', 'x'||$2"),
        ("SELECT a BETWEEN ? AND ?", "SELECT a BETWEEN $1 AND $2"),
        ("SELECT CASE WHEN ? THEN ? ELSE ? END", "SELECT CASE WHEN $1 THEN $2 ELSE $3 END"),
        ("SELECT '?', \"?\", $$ ? $$, $a$ ? $a$, E'\\'?' -- ?\n/* ? */ , ?", None),
        ("SELECT a ? 'k' FROM t WHERE b = ?", "SELECT a ? 'k' FROM t WHERE b = $1"),
        ("SELECT a ? ?", "SELECT a ? $1"),
        ("SELECT (a) ? b, a['x'] ? lower('x')", "SELECT (a) ? b, a['x'] ? lower('x')"),
        ("SELECT a ?| array['x'], a ?& b, a @? '$.x'", "SELECT a ?| array['x'], a ?& b, a @? '$.x'"),
        ("SELECT a ?| ?", "SELECT a ?| $1"),
        ("SELECT '{}'::jsonb ? 'a'", "SELECT '{}'::jsonb ? 'a'"),
        ("SELECT $1, a ? 'x', ?", "SELECT $1, a ? 'x', ?"),
        ("SELECT f(?)", "SELECT f($1)"),
        ("SELECT ?1, ?2", "SELECT ?1, ?2"),
        ("?", "$1"),
        ("SELECT ü ? 'x', ?", "SELECT ü ? 'x', $1"),
        ("SELECT 'not closed ?", "SELECT 'not closed ?"),
        ("SELECT 'a\\', ?", "SELECT 'a\\', $1"),
        ("SELECT ?" + " " * 70000, "SELECT ?" + " " * 70000),
    ],
)  # fmt: skip
def test_numbered(text: str, expected: str | None) -> None:
    if expected is None:
        expected = text[: text.rindex("?")] + "$1"
    assert numbered(text) == expected


def test_in_time_of_its_length() -> None:
    begun = time.monotonic()
    for piece in ("'", "''", '"', "/*", "$a$", "--", "e'\\'", "? "):
        numbered((piece * 60000)[:60000] + "?")
    assert time.monotonic() - begun < 5
