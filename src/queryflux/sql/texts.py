"""Pieces of text, and functions that treat NULL or a count in ways of their own."""

from collections.abc import Callable

from sqlglot import exp

from queryflux.sql.rewrites import Calls, Rules, call, integer_of, number, string, text_of, when

_DEEPEST = 3
"""How many calls of the same function may stand around one of those that grow."""


def _from_one(node: exp.Substring) -> exp.Expr | None:
    """PostgreSQL counts positions before the first one too: from -1 for 3 is one character."""
    start, length = integer_of(node.args.get("start")), node.args.get("length")
    if start is None or start > 0:
        return None
    copied = node.copy()
    copied.set("start", number(1))
    if length is not None:
        left = integer_of(length)
        if left is None:
            return None
        copied.set("length", number(max(left + start - 1, 0)))
    return copied


def _from_end(node: exp.Substring) -> exp.Expr | None:
    """Trino and MySQL count a negative start from the end, and have nothing at 0."""
    start, length = integer_of(node.args.get("start")), node.args.get("length")
    if start is None or start > 0:
        return None
    if start == 0:
        return exp.Left(this=node.this.copy(), expression=number(0))
    tail: exp.Expr = exp.Right(this=node.this.copy(), expression=number(-start))
    if length is not None:
        tail = exp.Left(this=tail, expression=length.copy())
    is_long = exp.GTE(this=exp.Length(this=node.this.copy()), expression=number(-start))
    nothing = exp.Left(this=node.this.copy(), expression=number(0))
    return when(is_long, tail, nothing)


def _without_last(node: exp.Left) -> exp.Expr | None:
    """PostgreSQL: LEFT of -2 is all but the last two."""
    count = integer_of(node.expression)
    if count is None or count >= 0:
        return None
    size = exp.Sub(this=exp.Length(this=node.this.copy()), expression=number(-count))
    return exp.Substring(this=node.this.copy(), start=number(1), length=call("GREATEST", size, number(0)))


def _without_first(node: exp.Right) -> exp.Expr | None:
    count = integer_of(node.expression)
    if count is None or count >= 0:
        return None
    return exp.Substring(this=node.this.copy(), start=number(1 - count))


def _last(node: exp.Right) -> exp.Expr:
    """All of a text that is shorter than the count; sqlglot begins before its first character."""
    start = exp.Sub(this=exp.Length(this=node.this.copy()), expression=exp.Paren(this=node.expression.copy()))
    first = call("GREATEST", exp.Add(this=start, expression=number(1)), number(1))
    return exp.Substring(this=node.this.copy(), start=first)


def _repeated(node: exp.Repeat) -> exp.Expr:
    """Trino's REPEAT makes an array."""
    return call("ARRAY_JOIN", call("REPEAT", node.this, node.args["times"]), string(""))


def _blanks_only(node: exp.Trim) -> exp.Expr | None:
    """Trino trims white space of every kind."""
    if node.expression is not None:
        return None
    copied = node.copy()
    copied.set("expression", string(" "))
    return copied


def _null_if_any(node: exp.Greatest | exp.Least) -> exp.Expr | None:
    """GREATEST and LEAST of a NULL are NULL on Trino and MySQL."""
    sides = [node.this, *node.expressions]
    nulls = [exp.Is(this=side.copy(), expression=exp.Null()) for side in sides]
    copied = node.copy()
    copied.set("ignore_nulls", True)  # or it would be written twice again
    return when(exp.or_(*nulls), exp.Null(), copied)


def _not_within_itself(node: exp.Expr) -> None:
    """sqlglot writes the operand of some functions several times, and theirs within them: so far and no
    farther."""
    depth, outer = 0, node.parent
    while outer is not None:
        depth += type(outer) is type(node)
        outer = outer.parent
    if depth > _DEEPEST:
        raise RecursionError


def _of_those_there(node: exp.Greatest | exp.Least) -> exp.Expr:
    """PostgreSQL leaves NULLs out of GREATEST and LEAST."""
    items = exp.Array(expressions=[side.copy() for side in (node.this, *node.expressions)])
    there = exp.Not(this=exp.Is(this=exp.to_identifier("i"), expression=exp.Null()))
    kept = call("FILTER", items, exp.Lambda(this=there, expressions=[exp.to_identifier("i")]))
    return call("ARRAY_MAX" if isinstance(node, exp.Greatest) else "ARRAY_MIN", kept)


def _joined(node: exp.GroupConcat) -> exp.Expr | None:
    """Trino's LISTAGG takes texts only, and wants an order."""
    if isinstance(node.parent, exp.Filter | exp.Window | exp.WithinGroup):
        return None
    item = node.this
    while isinstance(item, exp.Order | exp.Distinct):
        item = item.this if isinstance(item, exp.Order) else item.expressions[0]
    there = exp.Not(this=exp.Is(this=item.copy(), expression=exp.Null()))
    items = exp.Filter(this=exp.ArrayAgg(this=node.this.copy()), expression=exp.Where(this=there))
    separator = node.args.get("separator")
    return call("ARRAY_JOIN", items, separator if separator is not None else string(","))


def _joined_texts(node: exp.GroupConcat) -> exp.Expr | None:
    """PostgreSQL's STRING_AGG takes texts only."""
    order = node.this if isinstance(node.this, exp.Order) else None
    item = order.this if order is not None else node.this
    if isinstance(item, exp.Distinct | exp.Cast) or (isinstance(item, exp.Literal) and item.is_string):
        return None
    copied = node.copy()
    place = copied.this if order is not None else copied
    place.set("this", exp.cast(item.copy(), "TEXT"))
    return copied


def _length_or_null(node: exp.ArraySize) -> exp.Expr | None:
    """PostgreSQL's ARRAY_LENGTH of an empty array is NULL."""
    if integer_of(node.expression) != 1:
        return None
    return exp.Nullif(this=exp.ArraySize(this=node.this.copy()), expression=number(0))


def _part_or_empty(node: exp.SplitPart) -> exp.Expr:
    """PostgreSQL: an empty text where there are fewer parts; Trino: NULL."""
    return exp.Coalesce(this=node.copy(), expressions=[call("SUBSTR", node.this, number(1), number(0))])


def _part_or_null(function: str) -> Rules:
    def rule(node: exp.SplitPart) -> exp.Expr:
        parts = exp.Paren(this=call(function, node.this, node.args["delimiter"]))
        return exp.Bracket(this=parts, expressions=[node.args["part_index"].copy()], offset=1)

    return {exp.SplitPart: rule}


def _refused(name: str, argument: str) -> Callable[[exp.Expr], exp.Expr | None]:
    """An argument that the target lacks is passed on, for an error instead of another answer."""

    def rule(node: exp.Expr) -> exp.Expr | None:
        extra = node.args.get(argument)
        other = node.args.get("substr") or node.expression
        return call(name, node.this, other, extra) if extra is not None else None

    return rule


_REFUSED: Rules = {exp.StrPosition: _refused("STRPOS", "occurrence"), exp.Split: _refused("SPLIT", "limit")}


def _json_query_postgres(node: exp.JSONExtract) -> exp.Expr | None:
    path = text_of(node.expression)
    if path is None or not path.startswith(("lax ", "strict ")):
        return None
    found = call("JSONB_PATH_QUERY_FIRST", exp.cast(node.this.copy(), "JSONB"), node.expression)
    return exp.cast(found, "TEXT")


def _bytes(function: str, *, of_bytes: str = "") -> Rules:
    """MySQL's LENGTH counts bytes."""

    def rule(node: exp.Length) -> exp.Expr | None:
        if not node.args.get("binary"):
            return None
        return call(function, call(of_bytes, node.this) if of_bytes else node.this)

    return {exp.Length: rule}


def _slice(node: exp.ArraySlice) -> exp.Expr | None:
    """Trino's SLICE takes a start and a length, DuckDB's a start and an end."""
    start, length = node.args.get("start"), node.args.get("end")
    first, count = integer_of(start), integer_of(length)
    if first is None or length is None or start is None:
        return None
    end: exp.Expr = exp.Add(this=length.copy(), expression=number(first - 1))
    if first < 0:
        end = number(first + count - 1) if count is not None and first + count <= 0 else number(-1)
    elif count is not None:
        end = number(first + count - 1)
    return call("LIST_SLICE", node.this, start, end)


def _position_or_zero(node: exp.ArrayPosition) -> exp.Expr:
    """Trino's ARRAY_POSITION is 0 where the element is not there."""
    both = exp.and_(
        exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null())),
        exp.Not(this=exp.Is(this=node.expression.copy(), expression=exp.Null())),
    )
    return when(both, exp.Coalesce(this=node.copy(), expressions=[number(0)]))


def _counted_from_end(node: exp.Bracket) -> exp.Expr | None:
    """ELEMENT_AT of -1 is the last one."""
    place = integer_of(node.expressions[0]) if len(node.expressions) == 1 else None
    if place is None or place >= 0:
        return None
    last = call("CARDINALITY", node.this)
    index = exp.Sub(this=last, expression=number(-place - 1)) if place < -1 else last
    return exp.Bracket(this=exp.Paren(this=node.this.copy()), expressions=[index], offset=1)


def _plain_path(node: exp.Expr) -> exp.Expr | None:
    """SQL's path mode ('lax $.a') is not part of DuckDB's paths."""
    path = node.args.get("path") or node.expression
    text = text_of(path)
    if text is None or not text.startswith(("lax ", "strict ")):
        return None
    plain = string(text.partition(" ")[2].strip())
    if isinstance(node, exp.JSONValue):
        return call("JSON_EXTRACT_STRING", node.this, plain)
    return exp.cast(call("JSON_EXTRACT", node.this, plain), "TEXT")


def _json_exists(arguments: list[exp.Expr]) -> exp.Expr | None:
    text = text_of(arguments[1]) if len(arguments) == 2 else None
    if text is None:
        return None
    plain = text.partition(" ")[2].strip() if text.startswith(("lax ", "strict ")) else text
    return call("JSON_EXISTS", arguments[0], string(plain))


def _named(value: str) -> exp.Expr:
    return exp.cast(string(value), "DOUBLE")


_NUMBERS: Calls = {
    "NAN": lambda arguments: _named("NaN"),
    "INFINITY": lambda arguments: _named("Infinity"),
    "E": lambda arguments: call("EXP", number(1)) if not arguments else None,
}
_GROWING: Rules = dict.fromkeys((exp.Initcap, exp.StrPosition), _not_within_itself)
DUCKDB_FROM_POSTGRES: Rules = {
    **_GROWING,
    exp.Substring: _from_one,
    exp.ArraySize: _length_or_null,
    exp.Hex: lambda node: call("LOWER", call("HEX", node.this)),
}
TRINO_FROM_POSTGRES: Rules = {
    exp.ArraySize: _length_or_null,
    exp.ArrayPosition: lambda node: exp.Nullif(this=node.copy(), expression=number(0)),
    exp.SplitPart: _part_or_empty,
    exp.GroupConcat: _joined,
    exp.Substring: _from_one,
    exp.Left: _without_last,
    exp.Right: lambda node: _without_first(node) or _last(node),
    exp.Repeat: _repeated,
    exp.Trim: _blanks_only,
    exp.Greatest: _of_those_there,
    exp.Least: _of_those_there,
}
DUCKDB_FROM_TRINO: Rules = {
    **_REFUSED,
    **_part_or_null("STRING_SPLIT"),
    exp.Greatest: _null_if_any,
    exp.Least: _null_if_any,
    exp.Substring: _from_end,
    exp.ArraySlice: _slice,
    exp.ArrayPosition: _position_or_zero,
    exp.JSONValue: _plain_path,
    exp.JSONExtract: _plain_path,
}
DUCKDB_FROM_MYSQL: Rules = {
    **_GROWING,
    exp.Greatest: _null_if_any,
    exp.Least: _null_if_any,
    exp.Substring: _from_end,
    exp.JSONValue: lambda node: call("JSON_EXTRACT_STRING", node.this, node.args["path"]),
    **_bytes("STRLEN"),
}
POSTGRES_FROM_MYSQL: Rules = {
    exp.GroupConcat: _joined_texts,
    exp.Substring: _from_end,
    exp.Greatest: _null_if_any,
    exp.Least: _null_if_any,
    **_bytes("OCTET_LENGTH"),
}
POSTGRES_FROM_TRINO: Rules = {
    **_REFUSED,
    **_part_or_null("STRING_TO_ARRAY"),
    exp.JSONExtract: _json_query_postgres,
    exp.Bracket: _counted_from_end,
    exp.ArrayPosition: _position_or_zero,
    exp.Substring: _from_end,
    exp.Greatest: _null_if_any,
    exp.Least: _null_if_any,
}
TRINO_FROM_MYSQL: Rules = {
    exp.GroupConcat: _joined,
    exp.Repeat: _repeated,
    exp.Trim: _blanks_only,
    **_bytes("LENGTH", of_bytes="TO_UTF8"),
}
DUCKDB_CALLS_OF_TRINO: Calls = {
    "JSON_EXISTS": _json_exists,
    "EVERY": lambda arguments: call("BOOL_AND", *arguments),
    **_NUMBERS,
    "TO_BASE": lambda arguments: call("LOWER", call("TO_BASE", *arguments)),
    "IS_FINITE": lambda arguments: call("ISFINITE", *arguments),
    "IS_INFINITE": lambda arguments: call("ISINF", *arguments),
}
POSTGRES_CALLS_OF_TRINO: Calls = _NUMBERS
DUCKDB_CALLS_OF_POSTGRES: Calls = {"EVERY": lambda arguments: call("BOOL_AND", *arguments)}
