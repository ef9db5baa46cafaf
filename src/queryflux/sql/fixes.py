"""What sqlglot gets wrong for the engines here: small transforms of the syntax tree; pairs.py has the table.

Each transform takes the root of a parsed statement and returns the root, changed in place where that is
enough. Imported together with sqlglot, only when something is translated.
"""

import re

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from queryflux.sql.naming import PARAMETER_PREFIX
from queryflux.sql.rewrites import Transform

UNBOUNDED_SCALE = (38, 10)
"""Precision and scale of PostgreSQL's numeric where it has none of its own."""
_INTERVAL_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_DECIMAL_LITERAL = re.compile(r"[+-]?(\d*)\.?(\d*)")
_ISO_PARTS = {
    exp.DayOfWeekIso: "ISODOW",
    exp.DayOfYear: "DOY",
    exp.WeekOfYear: "WEEK",
    exp.YearOfWeekIso: "ISOYEAR",
}


def parameters(root: exp.Expr) -> exp.Expr:
    """Parameters of every spelling come out as ``$n``."""
    for node in list(root.find_all(exp.Parameter)):
        if isinstance(node.this, exp.Literal):
            node.replace(exp.Var(this=f"${node.this.this}"))
    for column in list(root.find_all(exp.Column)):
        name = column.name
        if name.startswith(PARAMETER_PREFIX):
            column.replace(exp.Var(this=f"${name.removeprefix(PARAMETER_PREFIX)}"))
    return root


def escape_strings(root: exp.Expr) -> exp.Expr:
    """E'..' is a string, not bytes; sqlglot has already undone its escapes."""
    for node in list(root.find_all(exp.ByteString)):
        node.replace(exp.Literal.string(node.this))
    return root


def introduced_strings(root: exp.Expr) -> exp.Expr:
    """MySQL's _utf8'..' and N'..' are strings; collations and index hints mean nothing elsewhere."""
    for node in list(root.find_all(exp.Introducer)):
        node.replace(node.expression)
    for national in list(root.find_all(exp.National)):
        national.replace(exp.Literal.string(national.this))
    for collated in list(root.find_all(exp.Collate)):
        collated.replace(collated.this)
    for join in root.find_all(exp.Join):
        if join.args.get("kind") == "STRAIGHT_JOIN":
            join.set("kind", None)
    return root


def bare_decimals(precision: int, scale: int) -> Transform:
    """DECIMAL without precision: what the source means by it, since targets have defaults of their own."""

    def fix(root: exp.Expr) -> exp.Expr:
        for cast in root.find_all(exp.Cast):
            kind = cast.to
            if kind.this != exp.DType.DECIMAL or kind.expressions:
                continue
            digits = (precision, scale)
            if isinstance(cast.this, exp.Literal) and (found := _DECIMAL_LITERAL.fullmatch(cast.this.this)):
                whole, fraction = len(found.group(1).lstrip("0")), len(found.group(2))
                digits = (max(whole + fraction, 1), fraction)
            kind.set("expressions", [exp.DataTypeParam(this=exp.Literal.number(n)) for n in digits])
        return root

    return fix


def sized_casts(root: exp.Expr) -> exp.Expr:
    """A cast to VARCHAR(n) cuts; DuckDB's does not."""
    for cast in list(root.find_all(exp.Cast)):
        kind = cast.to
        if kind.this not in exp.DataType.TEXT_TYPES or not kind.expressions:
            continue
        length = kind.expressions[0].this.copy()
        kind.set("this", exp.DType.TEXT)
        kind.set("expressions", None)
        cast.replace(exp.Left(this=cast.copy(), expression=length))
    return root


def unsized_casts(root: exp.Expr) -> exp.Expr:
    """MySQL's CAST AS CHAR is any length, CONVERT USING changes nothing, UNSIGNED is not PostgreSQL's."""
    for cast in list(root.find_all(exp.Cast)):
        kind = cast.to
        if kind.this == exp.DType.CHARACTER_SET:
            cast.replace(cast.this)
        elif kind.this == exp.DType.CHAR:
            kind.set("this", exp.DType.VARCHAR if kind.expressions else exp.DType.TEXT)
        elif kind.this == exp.DType.TIMESTAMPTZ and isinstance(cast.this, exp.Literal):
            kind.set("this", exp.DType.TIMESTAMP)
    return root


def unsigned_casts(root: exp.Expr) -> exp.Expr:
    """PostgreSQL has no unsigned integers."""
    for cast in root.find_all(exp.Cast):
        if cast.to.this == exp.DType.UBIGINT:
            cast.set("to", exp.DataType.build("DECIMAL(20, 0)"))
    return root


def integer_division(root: exp.Expr) -> exp.Expr:
    """Integers divide to integers, cut towards zero. DuckDB's ``//`` does so for integers and divides other
    numbers as usual; for intervals there is only ``/``."""
    divisions = list(root.find_all(exp.Div))
    if not divisions:
        return root
    annotate_types(root)
    for node in divisions[::-1]:
        left = node.this.unnest()
        if not left.is_type("interval") and not isinstance(left, exp.Interval):
            node.replace(exp.IntDiv(this=node.this.copy(), expression=node.expression.copy()))
    return root


def decimal_division(root: exp.Expr) -> exp.Expr:
    """MySQL divides to decimals and gives NULL for a division by zero; PostgreSQL divides what it gets."""
    for node in list(root.find_all(exp.Div)):
        if node.args.get("typed"):
            continue
        node.set("typed", True)
        node.set("safe", False)
        node.set("this", exp.Mul(this=exp.Literal.number("1.0"), expression=exp.paren(node.this, copy=False)))
        node.set("expression", exp.Nullif(this=node.expression.copy(), expression=exp.Literal.number(0)))
    return root


def trino_weekdays(root: exp.Expr) -> exp.Expr:
    """PostgreSQL counts Sunday as 0, Trino as 7."""
    for node in list(root.find_all(exp.Extract)):
        part = node.name.upper()
        if part in ("DOW", "DAYOFWEEK"):
            node.replace(exp.Paren(this=exp.Mod(this=node.copy(), expression=exp.Literal.number(7))))
        elif part == "ISODOW":
            node.set("this", exp.var("DOW"))
        elif part == "ISOYEAR":
            node.set("this", exp.var("YEAR_OF_WEEK"))
    return root


def iso_weekdays(root: exp.Expr) -> exp.Expr:
    """Trino's DOW is the ISO weekday."""
    for node in root.find_all(exp.Extract):
        if node.name.upper() in ("DOW", "DAY_OF_WEEK", "DAYOFWEEK"):
            node.set("this", exp.var("ISODOW"))
    return root


def extracted_integers(root: exp.Expr) -> exp.Expr:
    """PostgreSQL extracts numerics, Trino and MySQL integers."""
    for kind, part in _ISO_PARTS.items():
        for node in list(root.find_all(kind)):
            node.replace(exp.Extract(this=exp.var(part), expression=node.this.copy()))
    for part in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY"):
        for node in list(root.find_all(getattr(exp, part.title()))):
            node.replace(exp.Extract(this=exp.var(part), expression=node.this.copy()))
    for extract in list(root.find_all(exp.Extract)):
        if extract.name.upper() not in ("EPOCH", "SECOND", "SECONDS") and not isinstance(
            extract.parent, exp.Cast
        ):
            extract.replace(exp.cast(extract.copy(), "BIGINT"))
    return root


def mysql_weekdays(root: exp.Expr) -> exp.Expr:
    """MySQL: DAYOFWEEK counts Sunday as 1, WEEKDAY Monday as 0."""
    for node in list(root.find_all(exp.DayOfWeek)):
        part = exp.Extract(this=exp.var("DOW"), expression=node.this.copy())
        node.replace(exp.Paren(this=exp.Add(this=part, expression=exp.Literal.number(1))))
    for call in list(root.find_all(exp.Anonymous)):
        if call.name.upper() == "WEEKDAY" and len(call.expressions) == 1:
            part = exp.Extract(this=exp.var("ISODOW"), expression=call.expressions[0].copy())
            call.replace(exp.Paren(this=exp.Sub(this=part, expression=exp.Literal.number(1))))
    return root


def mysql_functions(root: exp.Expr) -> exp.Expr:
    """MySQL functions that sqlglot passes on by name."""
    for node in list(root.find_all(exp.Anonymous)):
        name, arguments = node.name.upper(), node.expressions
        if name == "MID" and len(arguments) == 3:
            node.replace(exp.Substring(this=arguments[0], start=arguments[1], length=arguments[2]))
        elif name in ("ADDDATE", "SUBDATE") and len(arguments) == 2:
            days = arguments[1]
            if not isinstance(days, exp.Interval):
                days = exp.Interval(this=exp.Literal.string(days.sql()), unit=exp.var("DAY"))
            operator = exp.Add if name == "ADDDATE" else exp.Sub
            node.replace(operator(this=arguments[0].copy(), expression=days.copy()))
        elif name == "FIELD" and len(arguments) > 1:
            branches = [
                exp.If(
                    this=exp.EQ(this=arguments[0].copy(), expression=value.copy()), true=exp.Literal.number(n)
                )
                for n, value in enumerate(arguments[1:], 1)
            ]
            node.replace(exp.Case(ifs=branches, default=exp.Literal.number(0)))
        elif name in ("USER", "SESSION_USER", "SYSTEM_USER") and not arguments:
            node.replace(exp.CurrentUser())
    return root


def rollups(root: exp.Expr) -> exp.Expr:
    """GROUP BY a, b WITH ROLLUP is MySQL's spelling of ROLLUP (a, b)."""
    for group in root.find_all(exp.Group):
        marks = group.args.get("rollup") or []
        if len(marks) == 1 and not marks[0].expressions and group.expressions:
            group.set("rollup", [exp.Rollup(expressions=[item.copy() for item in group.expressions])])
            group.set("expressions", [])
    return root


def timestamp_differences(root: exp.Expr) -> exp.Expr:
    """TIMESTAMPDIFF of a fixed unit for PostgreSQL, cut towards zero."""
    seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
    for node in list(root.find_all(exp.TimestampDiff)):
        size = seconds.get(node.text("unit").upper())
        if size is None:
            continue
        parts = [exp.cast(side.copy(), "TIMESTAMP") for side in (node.this, node.expression)]
        span = exp.Extract(
            this=exp.var("EPOCH"), expression=exp.Paren(this=exp.Sub(this=parts[0], expression=parts[1]))
        )
        whole = exp.Trunc(this=exp.Div(this=span, expression=exp.Literal.number(size), typed=True))
        node.replace(exp.cast(whole, "BIGINT"))
    return root


def simple_intervals(root: exp.Expr) -> exp.Expr:
    """Trino's interval literals hold one unit: '1 month 2 days' becomes a sum, and a cast text a literal."""
    for node in list(root.find_all(exp.Interval)):
        if node.args.get("unit") is None and isinstance(node.this, exp.Literal):
            _replace_interval(node, node.this.this)
    for cast in list(root.find_all(exp.Cast)):
        if cast.to.this == exp.DType.INTERVAL and isinstance(cast.this, exp.Literal):
            _replace_interval(cast, cast.this.this)
    return root


def _replace_interval(node: exp.Expr, text: str) -> None:
    parts = [
        exp.Interval(this=exp.Literal.string(amount), unit=exp.var(unit.upper().rstrip("S")))
        for amount, unit in _INTERVAL_PART.findall(text)
    ]
    if not parts or _INTERVAL_PART.sub("", text).strip(" ,"):
        return
    whole: exp.Expr = parts[0]
    for part in parts[1:]:
        whole = exp.Add(this=whole, expression=part)
    node.replace(exp.Paren(this=whole) if len(parts) > 1 else whole)


def date_arithmetic(root: exp.Expr) -> exp.Expr:
    """A date plus a number of days, where the types can be told; Trino wants an interval."""
    sums = [n for n in root.find_all(exp.Add, exp.Sub) if isinstance(n.expression, exp.Literal)]
    if sums:
        annotate_types(root)
    for node in sums:
        if node.this.unnest().is_type("date") and node.expression.is_int:
            days = exp.Interval(this=exp.Literal.string(node.expression.this), unit=exp.var("DAY"))
            node.set("expression", days)
    return root


def case_blind_patterns(root: exp.Expr) -> exp.Expr:
    """``~*`` for Trino."""
    for node in list(root.find_all(exp.RegexpILike)):
        pattern = exp.DPipe(this=exp.Literal.string("(?i)"), expression=node.expression.copy(), safe=False)
        node.replace(exp.RegexpLike(this=node.this.copy(), expression=pattern))
    return root


def pattern_substrings(root: exp.Expr) -> exp.Expr:
    """SUBSTRING(s FROM 'pattern') extracts by a regular expression."""
    for node in list(root.find_all(exp.Substring)):
        start = node.args.get("start")
        if isinstance(start, exp.Literal) and start.is_string:
            group = 1 if re.search(r"(?<!\\)\((?!\?)", start.this) else 0
            arguments = [node.this.copy(), start.copy(), exp.Literal.number(group)]
            node.replace(exp.Anonymous(this="REGEXP_EXTRACT", expressions=arguments))
    return root


def truth_tests(root: exp.Expr) -> exp.Expr:
    """Trino has no IS TRUE."""
    for node in list(root.find_all(exp.Is)):
        if isinstance(node.expression, exp.Boolean):
            node.replace(exp.NullSafeEQ(this=node.this.copy(), expression=node.expression.copy()))
    return root


def portable_types(root: exp.Expr) -> exp.Expr:
    """PostgreSQL types without a namesake."""
    names = {"NAME": "TEXT", "REGCLASS": "TEXT", "CITEXT": "TEXT", "BPCHAR": "TEXT"}
    for cast in root.find_all(exp.Cast):
        kind = cast.to
        target = names.get(kind.sql(dialect="postgres").upper())
        if target:
            cast.set("to", exp.DataType.build(target))
        elif kind.this == exp.DType.JSONB:
            kind.set("this", exp.DType.JSON)
    return root
