"""Numbers and bits: whole quotients, remainders, constants."""

import re

from sqlglot import exp

from queryflux.sql.rewrites import Rules, call, integer_of, number, string, text_of

_HEX_BYTES = re.compile(r"\\x(?:[0-9A-Fa-f]{2})*")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)')


def _whole_quotient(node: exp.Cast) -> exp.Expr | None:
    """PostgreSQL's DIV, which the parser casts to a DECIMAL of no precision."""
    kind = node.to
    if not isinstance(node.this, exp.IntDiv) or kind.this != exp.DType.DECIMAL or kind.expressions:
        return None
    return exp.cast(node.this.copy(), "DECIMAL(38, 0)")


def _or_null(divisor: exp.Expr) -> exp.Expr:
    known = integer_of(divisor)
    return divisor.copy() if known else exp.Nullif(this=divisor.copy(), expression=number(0))


def _div_duckdb(node: exp.IntDiv) -> exp.Expr:
    """MySQL's DIV is a whole number, NULL for zero; DuckDB's ``//`` is one for integers only."""
    quotient = exp.IntDiv(this=node.this.copy(), expression=_or_null(node.expression))
    return exp.cast(call("TRUNC", quotient), "BIGINT")


def _div_postgres(node: exp.IntDiv) -> exp.Expr:
    return exp.cast(call("DIV", node.this, _or_null(node.expression)), "BIGINT")


def _mod(node: exp.Mod) -> exp.Expr | None:
    """A remainder of zero is NULL for MySQL."""
    if integer_of(node.expression) or isinstance(node.expression, exp.Nullif):
        return None
    node.set("expression", _or_null(node.expression))
    return None


def _binary_digits(node: exp.Expr) -> str:
    digits = str(node.this)
    return bin(int(digits, 16))[2:].zfill(4 * len(digits)) if digits else ""


def _bits_duckdb(node: exp.Expr) -> exp.Expr:
    """PostgreSQL's B'..' and X'..' are strings of bits. Clients get them as text."""
    if isinstance(node.parent, exp.Select | exp.Alias):
        return _bits_text(node)
    digits = str(node.this) if isinstance(node, exp.BitString) else _binary_digits(node)
    return exp.cast(string(digits), exp.DataType.build("BIT", dialect="duckdb"))


def _bits_text(node: exp.Expr) -> exp.Expr:
    return string(str(node.this) if isinstance(node, exp.BitString) else _binary_digits(node))


def _hex_postgres(node: exp.HexString) -> exp.Expr:
    """X'..' is bytes on MySQL and Trino."""
    return call("DECODE", string(str(node.this)), string("hex"))


def _double_postgres(node: exp.Literal) -> exp.Expr | None:
    """1e3 is a double on MySQL and Trino, a numeric on PostgreSQL."""
    if node.is_string or "e" not in node.this.lower():
        return None
    return exp.cast(number(node.this), "DOUBLE")


def _scaled(node: exp.Round | exp.Trunc) -> exp.Expr | None:
    """ROUND(x, 2) is a numeric of two digits on PostgreSQL; Trino keeps the scale of x."""
    digits = integer_of(node.args.get("decimals"))
    if digits is None or isinstance(node.parent, exp.Cast):
        return None
    return exp.cast(node.copy(), f"DECIMAL(38, {min(max(digits, 0), 38)})")


def _array_text(node: exp.Cast) -> exp.Expr | None:
    """'{1,2}'::int[] is an array in PostgreSQL's form, which nobody else reads."""
    text = text_of(node.this)
    if node.to.this != exp.DType.ARRAY or text is None or not text.startswith("{"):
        return None
    body = text.strip()[1:-1]
    found = _ELEMENT.findall(body)
    commas = _ELEMENT.sub("", body).replace(" ", "")
    if commas != "," * max(0, len(found) - 1) or "{" in body:
        return None  # nested, or malformed: an error in PostgreSQL
    items = [_element(quoted, plain) for quoted, plain in found]
    return exp.cast(exp.Array(expressions=items), node.to.copy())


def _element(quoted: str, plain: str) -> exp.Expr:
    if plain.strip().upper() == "NULL":
        return exp.Null()
    return string(plain.strip() if plain else re.sub(r"\\(.)", r"\1", quoted))


def _bytes_text(node: exp.Cast) -> exp.Expr | None:
    """'\\x6162'::bytea is bytes in PostgreSQL's form."""
    text = text_of(node.this)
    if node.to.this != exp.DType.VARBINARY or text is None or not _HEX_BYTES.fullmatch(text):
        return None
    return exp.HexString(this=text[2:])


def _cast(node: exp.Cast) -> exp.Expr | None:
    return _whole_quotient(node) or _array_text(node) or _bytes_text(node)


def _cast_trino(node: exp.Cast) -> exp.Expr | None:
    if node.to.this in (exp.DType.JSON, exp.DType.JSONB):
        return call("JSON_PARSE", node.this)  # a cast makes a JSON string of the text
    return _cast(node)


def _number_in_text(node: exp.Binary) -> exp.Expr | None:
    """MySQL calculates with strings as doubles; other engines make integers of them."""
    sides = [text_of(side) for side in (node.this, node.expression)]
    for place, side in zip(("this", "expression"), sides, strict=True):
        if side is not None and _NUMBER.fullmatch(side):
            node.set(place, exp.cast(string(side), "DOUBLE"))
    return None


_ARITHMETIC: Rules = dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), _number_in_text)


DUCKDB_FROM_POSTGRES: Rules = {
    exp.Cast: _cast,
    exp.BitString: _bits_duckdb,
    exp.HexString: _bits_duckdb,
}
TRINO_FROM_POSTGRES: Rules = {
    exp.Cast: _cast_trino,
    exp.BitString: _bits_text,
    exp.HexString: _bits_text,
    exp.Round: _scaled,
    exp.Trunc: _scaled,
}
TRINO_FROM_MYSQL: Rules = _ARITHMETIC
DUCKDB_FROM_MYSQL: Rules = {**_ARITHMETIC, exp.IntDiv: _div_duckdb, exp.Mod: _mod}
POSTGRES_FROM_MYSQL: Rules = {
    **_ARITHMETIC,
    exp.IntDiv: _div_postgres,
    exp.Mod: _mod,
    exp.HexString: _hex_postgres,
    exp.Literal: _double_postgres,
}
POSTGRES_FROM_TRINO: Rules = {exp.HexString: _hex_postgres, exp.Literal: _double_postgres}
