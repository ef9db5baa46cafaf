"""Functions of other dialects that DuckDB has under another name or with another result."""

from collections.abc import Callable

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

_DATE_UNITS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_CLOCKS = frozenset({"CLOCK_TIMESTAMP", "STATEMENT_TIMESTAMP", "TRANSACTION_TIMESTAMP"})
_ENCODINGS = {"hex": ("HEX", "UNHEX"), "base64": ("TO_BASE64", "FROM_BASE64")}


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def _renamed(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda arguments: _call(name, *arguments)


def _unix_timestamp(arguments: list[exp.Expr]) -> exp.Expr:
    moment = exp.cast(arguments[0].copy(), "TIMESTAMPTZ") if arguments else _call("NOW")
    return exp.cast(_call("FLOOR", _call("EPOCH", moment)), "BIGINT")


def _sleep(arguments: list[exp.Expr]) -> exp.Expr:
    done = exp.Is(this=_call("PG_SLEEP", *arguments), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=done, true=exp.Literal.number(0))])


def _at_time_zone(arguments: list[exp.Expr]) -> exp.Expr:
    return exp.AtTimeZone(this=arguments[0].copy(), zone=arguments[1].copy())


_BY_NAME: dict[tuple[str, int], Callable[[list[exp.Expr]], exp.Expr]] = {
    ("UNIX_TIMESTAMP", 0): _unix_timestamp,
    ("UNIX_TIMESTAMP", 1): _unix_timestamp,
    ("SLEEP", 1): _sleep,
    ("AT_TIMEZONE", 2): _at_time_zone,
    ("WITH_TIMEZONE", 2): _at_time_zone,
    **{(name, 0): _renamed("NOW") for name in _CLOCKS},
}
_ANY_COUNT = {
    "JSON_BUILD_OBJECT": _renamed("JSON_OBJECT"),
    "JSONB_BUILD_OBJECT": _renamed("JSON_OBJECT"),
    "JSON_BUILD_ARRAY": _renamed("JSON_ARRAY"),
    "JSONB_BUILD_ARRAY": _renamed("JSON_ARRAY"),
}


def duckdb_functions(root: exp.Expr) -> exp.Expr:
    """What sqlglot passes on by name, or encodes wrongly."""
    for call in list(root.find_all(exp.Anonymous)):
        name = call.name.upper()
        write = _BY_NAME.get((name, len(call.expressions))) or _ANY_COUNT.get(name)
        if write is not None:
            call.replace(write(call.expressions))
    for node in list(root.find_all(exp.CurrentTimezone)):
        node.replace(_call("CURRENT_SETTING", exp.Literal.string("TimeZone")))
    for coded in list(root.find_all(exp.Encode, exp.Decode)):
        names = _ENCODINGS.get(coded.text("charset").lower())
        if names is not None:
            encoding = isinstance(coded, exp.Encode)
            text = _call(names[not encoding], coded.this)
            coded.replace(_call("LOWER", text) if names[0] == "HEX" and encoding else text)
    return root


def counted_conditions(root: exp.Expr) -> exp.Expr:
    """COUNT_IF is a BIGINT; DuckDB's is a HUGEINT."""
    for node in list(root.find_all(exp.CountIf)):
        branch = exp.If(this=node.this.copy(), true=exp.Literal.number(1))
        node.replace(exp.Count(this=exp.Case(ifs=[branch])))
    return root


def parts_by_delimiter(root: exp.Expr) -> exp.Expr:
    """SUBSTRING_INDEX with a constant count."""
    for node in list(root.find_all(exp.SubstringIndex)):
        count, delimiter = node.args["count"], node.args["delimiter"]
        last = isinstance(count, exp.Neg)
        number = count.this if last else count
        if not number.is_int:
            continue
        bounds = exp.Slice(this=count.copy()) if last else exp.Slice(expression=count.copy())
        parts = exp.Bracket(this=_call("STRING_SPLIT", node.this, delimiter), expressions=[bounds])
        node.replace(_call("ARRAY_TO_STRING", parts, delimiter))
    return root


def whole_differences(root: exp.Expr) -> exp.Expr:
    """TIMESTAMPDIFF and Trino's DATE_DIFF count whole units; DuckDB's DATE_DIFF counts the boundaries."""
    for node in list(root.find_all(exp.TimestampDiff, exp.DateDiff)):
        unit = node.text("unit").lower()
        if isinstance(node, exp.DateDiff) and not unit:
            continue  # MySQL's DATEDIFF is of dates
        sides = [node.expression, node.this]
        if isinstance(node, exp.TimestampDiff):
            sides = [exp.cast(side.copy(), "TIMESTAMP") for side in sides]
        node.replace(_call("DATE_SUB", exp.Literal.string(unit), *sides))
    return root


def dates_stay(root: exp.Expr) -> exp.Expr:
    """A date plus days or months, or cut to a month, is a date where the types can be told; DuckDB makes it a
    timestamp."""
    kinds = (exp.Add, exp.Sub, exp.DateAdd, exp.DateSub, exp.DateTrunc, exp.TimestampTrunc)
    nodes = [node for node in root.find_all(*kinds) if _date_unit(node)]
    if nodes:
        annotate_types(root)
    for node in nodes[::-1]:
        operand = node.this.unnest()
        if operand.is_type("date") or (isinstance(operand, exp.Cast) and operand.to.is_type("date")):
            node.replace(exp.cast(node.copy(), "DATE"))
    return root


def _date_unit(node: exp.Expr) -> bool:
    if isinstance(node, exp.Add | exp.Sub):
        interval = node.expression
        return isinstance(interval, exp.Interval) and interval.text("unit").upper() in _DATE_UNITS
    return node.text("unit").upper() in _DATE_UNITS


def no_dual(root: exp.Expr) -> exp.Expr:
    """FROM DUAL is no table; SQL_CALC_FOUND_ROWS and the like are advice."""
    for select in root.find_all(exp.Select):
        select.set("operation_modifiers", None)
        source = select.args.get("from_")
        if source is None or select.args.get("joins"):
            continue
        table = source.this
        if isinstance(table, exp.Table) and table.name.upper() == "DUAL" and not table.db:
            select.set("from_", None)
    return root
