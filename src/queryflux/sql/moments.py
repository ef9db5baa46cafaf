"""Dates and times: what stays a date, the digits of seconds, weeks, differences."""

from sqlglot import exp

from queryflux.sql.rewrites import Calls, Rule, Rules, call, integer_of, number, string, text_of, when

_WHOLE_DAYS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_MICROSECONDS = 1_000_000
_UNIX_DAY_NUMBER = 719528
"""What MySQL's TO_DAYS says of 1970-01-01."""


def is_date(node: exp.Expr) -> bool:
    """Whether an expression tells by itself that it is a date."""
    node = node.unnest()
    if isinstance(node, exp.Cast):
        return bool(node.to.this == exp.DType.DATE)
    if isinstance(node, exp.Add | exp.Sub):
        return is_date(node.this) and integer_of(node.expression) is not None
    return isinstance(node, exp.CurrentDate | exp.TsOrDsToDate | exp.StrToDate)


def _precise(node: exp.Expr, *, rounds: bool) -> exp.Expr | None:
    """A clock with fewer digits than six, for DuckDB, whose clocks have no precision."""
    digits = integer_of(node.this)
    if digits is None or digits > 5:
        return type(node)() if digits is not None else None
    unit = 10 ** (6 - digits)
    moment = node.copy()
    moment.set("this", None)
    if rounds:
        moment = exp.Add(this=moment, expression=_microseconds(unit // 2))
    return call("TIME_BUCKET", _microseconds(unit), moment)


def _microseconds(count: int) -> exp.Expr:
    return exp.Interval(this=string(str(count)), unit=exp.var("MICROSECOND"))


def _whole_second(node: exp.Localtimestamp) -> exp.Expr | None:
    """MySQL's NOW() has no fraction of a second unless it asks for digits."""
    digits = integer_of(node.this)
    if digits is None or digits > 5:
        return exp.Localtimestamp() if digits is not None else None
    if digits:
        return call("LOCALTIMESTAMP", node.this)
    return call("DATE_TRUNC", string("second"), exp.Localtimestamp())


def _written_precision(node: exp.Expr) -> exp.Expr | None:
    """sqlglot writes CURRENT_TIMESTAMP(0) without its digits."""
    if integer_of(node.this) is None:
        return None
    return call(
        "CURRENT_TIMESTAMP" if isinstance(node, exp.CurrentTimestamp) else "LOCALTIMESTAMP", node.this
    )


def _moment_of_date(node: exp.Expr) -> exp.Expr | None:
    """PostgreSQL: a date plus an interval is a timestamp."""
    if not isinstance(node.expression, exp.Interval) or not is_date(node.this):
        return None
    copied = node.copy()
    copied.set("this", exp.cast(copied.this, "TIMESTAMP"))
    return copied


def _days_between(node: exp.Sub) -> exp.Expr | None:
    """PostgreSQL: a date minus a date is a number of days; Trino's an interval."""
    if not (is_date(node.this) and is_date(node.expression)):
        return None
    return exp.cast(call("DATE_DIFF", string("day"), node.expression, node.this), "INTEGER")


def _truncated_date(node: exp.Expr) -> exp.Expr | None:
    """PostgreSQL cuts a date to a timestamp with time zone."""
    if not is_date(node.this):
        return None
    copied = node.copy()
    copied.set("this", exp.cast(copied.this, "TIMESTAMPTZ"))
    return copied


def _seconds_duckdb(node: exp.Extract) -> exp.Expr | None:
    """PostgreSQL's seconds and milliseconds have a fraction."""
    scale = {"SECOND": "0.000001", "MILLISECOND": "0.001", "MILLISECONDS": "0.001"}.get(node.name.upper())
    if scale is None:
        return None
    micros = exp.Extract(this=exp.var("MICROSECOND"), expression=node.expression.copy())
    return exp.Paren(this=exp.Mul(this=micros, expression=number(scale)))


def _seconds_trino(node: exp.Extract) -> exp.Expr | None:
    if node.name.upper() != "SECOND":
        return None
    millis = exp.Mul(this=call("MILLISECOND", node.expression), expression=number("0.001"))
    return exp.Paren(this=exp.Add(this=node.copy(), expression=millis))


def _dated_literal(node: exp.Expr) -> exp.Expr | None:
    """MySQL adds to a string what it says: a date, or a time of day too."""
    text = text_of(node.this)
    unit = node.text("unit")
    if isinstance(node, exp.Add | exp.Sub):
        interval = node.expression
        if not isinstance(interval, exp.Interval):
            return None
        unit = interval.text("unit")
    if text is None:
        return None
    is_day = len(text.strip()) <= 10 and unit.upper() in _WHOLE_DAYS
    copied = node.copy()
    copied.set("this", exp.cast(string(text), "DATE" if is_day else "TIMESTAMP"))
    return copied


def _added_to_literal(node: exp.TimestampAdd) -> exp.Expr | None:
    text = text_of(node.this)
    if text is None:
        return None
    count = integer_of(node.expression)
    amount = string(str(count)) if count is not None else node.expression.copy()
    interval = exp.Interval(this=amount, unit=exp.var(node.text("unit")))
    return _dated_literal(exp.Add(this=node.this.copy(), expression=interval))


def _week(node: exp.Week) -> exp.Expr | None:
    """MySQL's WEEK: without a mode weeks begin on Sunday, and what is before the first one is week 0."""
    mode = integer_of(node.args.get("mode")) if node.args.get("mode") is not None else 0
    if mode == 3:
        return exp.Week(this=node.this.copy())
    if mode not in (0, 1, 5):
        return None
    date = node.this
    day = exp.Extract(this=exp.var("DOY"), expression=date.copy())
    weekday = _modulo(exp.Extract(this=exp.var("DOW"), expression=date.copy()), 0 if mode == 0 else 6)
    days = exp.Sub(this=exp.Add(this=day, expression=number(6)), expression=weekday)
    week = exp.cast(call("FLOOR", exp.Div(this=exp.Paren(this=days), expression=number("7.0"))), "INT")
    if mode != 1:
        return week
    # Week 1 has four days or more: the year begins on Tuesday, Wednesday or Thursday, counted from Monday.
    first = _modulo(exp.Paren(this=exp.Sub(this=weekday.copy(), expression=day.copy())), 372)
    is_part = exp.Between(this=first, low=number(1), high=number(3))
    return exp.Paren(this=exp.Add(this=week, expression=when(is_part, number(1), number(0))))


def _modulo(node: exp.Expr, added: int) -> exp.Expr:
    total = exp.Paren(this=exp.Add(this=node, expression=number(added)))
    return exp.Paren(this=exp.Mod(this=total, expression=number(7)))


def _day_number(node: exp.Paren) -> exp.Expr | None:
    """MySQL's TO_DAYS; sqlglot counts from a year 0 that is longer than MySQL's."""
    total = node.this
    if not isinstance(total, exp.Add) or not isinstance(total.this, exp.DateDiff):
        return None
    start = total.this.expression
    if not isinstance(start, exp.TsOrDsToDate) or text_of(start.this) != "0000-01-01":
        return None
    since = exp.DateDiff(this=total.this.this.copy(), expression=exp.TsOrDsToDate(this=string("1970-01-01")))
    return exp.Paren(this=exp.Add(this=since, expression=number(_UNIX_DAY_NUMBER)))


def _formatted_unix_time(node: exp.UnixToTime) -> exp.Expr | None:
    pattern = node.args.get("format")
    if pattern is None:
        return None
    return exp.TimeToStr(this=exp.UnixToTime(this=node.this.copy()), format=pattern.copy())


def _whole_difference(node: exp.DateDiff) -> exp.Expr | None:
    """Trino counts whole hours; PostgreSQL's cast rounds them."""
    seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}.get(
        node.text("unit").upper()
    )
    if seconds is None:
        return None
    sides = [exp.cast(side.copy(), "TIMESTAMP") for side in (node.this, node.expression)]
    span = exp.Paren(this=exp.Sub(this=sides[0], expression=sides[1]))
    count = exp.Div(
        this=exp.Extract(this=exp.var("EPOCH"), expression=span), expression=number(seconds), typed=True
    )
    return exp.cast(call("TRUNC", count), "BIGINT")


def _interval_between(node: exp.Sub) -> exp.Expr | None:
    """Trino: a date minus a date is an interval."""
    if not (is_date(node.this) and is_date(node.expression)):
        return None
    sides = [exp.cast(side.copy(), "TIMESTAMP") for side in (node.this, node.expression)]
    return exp.Sub(this=sides[0], expression=sides[1])


def _local_moment(node: exp.AtTimeZone) -> exp.Expr | None:
    """PostgreSQL: AT TIME ZONE gives a time without a zone the zone, and takes it from one that has it; Trino
    only changes the zone. Where the operand tells which of the two it is."""
    operand = node.this.unnest()
    if isinstance(operand, exp.Cast) and operand.to.this == exp.DType.TIMESTAMP:
        return call("WITH_TIMEZONE", operand, node.args["zone"])
    has_zone = isinstance(operand, exp.Cast) and operand.to.this == exp.DType.TIMESTAMPTZ
    if has_zone or isinstance(operand, exp.CurrentTimestamp):
        return exp.cast(node.copy(), "TIMESTAMP")
    return None


def _offset(zone: exp.Expr) -> exp.Expr:
    """PostgreSQL turns the sign of '+09:00' round; of an interval it does not."""
    text = text_of(zone) or ""
    return exp.cast(zone.copy(), "INTERVAL") if text[:1] in ("+", "-") else zone.copy()


def _converted_postgres(node: exp.ConvertTimezone) -> exp.Expr | None:
    source, target = node.args.get("source_tz"), node.args["target_tz"]
    if source is None:
        return None
    moment = exp.Paren(this=exp.cast(node.args["timestamp"].copy(), "TIMESTAMP"))
    return exp.AtTimeZone(this=exp.AtTimeZone(this=moment, zone=_offset(source)), zone=_offset(target))


def _converted_trino(node: exp.ConvertTimezone) -> exp.Expr | None:
    source, target = node.args.get("source_tz"), node.args["target_tz"]
    if source is None:
        return None
    moment = call("WITH_TIMEZONE", exp.cast(node.args["timestamp"].copy(), "TIMESTAMP"), source)
    return exp.cast(call("AT_TIMEZONE", moment, target), "TIMESTAMP")


def _without_zone(node: exp.StrToTime) -> exp.Expr:
    """A time that was parsed has no zone on Trino and MySQL."""
    return exp.cast(node.copy(), "TIMESTAMP")


def _part(name: str, *, floor: bool = False) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        part: exp.Expr = exp.Extract(this=exp.var(name), expression=node.this.copy())
        return exp.cast(call("FLOOR", part) if floor else part, "BIGINT")

    return rule


def _whole_seconds(node: exp.Extract) -> exp.Expr | None:
    """Trino and MySQL extract whole seconds."""
    if node.name.upper() not in ("SECOND", "SECONDS") or isinstance(node.parent, exp.Anonymous):
        return None
    return exp.cast(call("FLOOR", node), "BIGINT")


def _remainder(function: str, size: int) -> Calls:
    def write(arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Paren(this=exp.Mod(this=call(function, *arguments), expression=number(size)))

    return {function: write}


def _milliseconds_postgres(arguments: list[exp.Expr]) -> exp.Expr:
    part = exp.Extract(this=exp.var("MILLISECONDS"), expression=arguments[0].copy())
    return exp.Mod(this=exp.cast(call("FLOOR", part), "BIGINT"), expression=number(1000))


def _microseconds_postgres(arguments: list[exp.Expr]) -> exp.Expr:
    part = exp.Extract(this=exp.var("MICROSECONDS"), expression=exp.cast(arguments[0].copy(), "TIMESTAMP"))
    return exp.Mod(this=exp.cast(part, "BIGINT"), expression=number(_MICROSECONDS))


ROUNDED_CLOCKS: Rules = {
    kind: lambda node: _precise(node, rounds=True) for kind in (exp.CurrentTimestamp, exp.Localtimestamp)
}
CUT_CLOCKS: Rules = {exp.Localtimestamp: lambda node: _precise(node, rounds=False)}
WRITTEN_CLOCKS: Rules = dict.fromkeys((exp.CurrentTimestamp, exp.Localtimestamp), _written_precision)
DUCKDB_FROM_POSTGRES: Rules = {
    exp.Extract: _seconds_duckdb,
    exp.TimestampTrunc: _truncated_date,
    exp.DateTrunc: _truncated_date,
    **ROUNDED_CLOCKS,
}
TRINO_FROM_POSTGRES: Rules = {
    exp.Extract: _seconds_trino,
    exp.TimestampTrunc: _truncated_date,
    exp.DateTrunc: _truncated_date,
    exp.Add: _moment_of_date,
    exp.Sub: lambda node: _days_between(node) or _moment_of_date(node),
    exp.AtTimeZone: _local_moment,
    **WRITTEN_CLOCKS,
}
FROM_MYSQL: Rules = {
    exp.DateAdd: _dated_literal,
    exp.DateSub: _dated_literal,
    exp.Add: _dated_literal,
    exp.Sub: _dated_literal,
    exp.TimestampAdd: _added_to_literal,
    exp.Week: _week,
    exp.Paren: _day_number,
    exp.UnixToTime: _formatted_unix_time,
}
DUCKDB_FROM_TRINO: Rules = {exp.Sub: _interval_between, **ROUNDED_CLOCKS}
POSTGRES_PARTS: Rules = {
    exp.Hour: _part("HOUR"),
    exp.Minute: _part("MINUTE"),
    exp.Second: _part("SECOND", floor=True),
    exp.DayOfMonth: _part("DAY"),
    exp.Extract: _whole_seconds,
}
POSTGRES_FROM_MYSQL: Rules = {
    exp.Localtimestamp: _whole_second,
    exp.ConvertTimezone: _converted_postgres,
    exp.StrToTime: _without_zone,
    **POSTGRES_PARTS,
}
TRINO_FROM_MYSQL: Rules = {exp.ConvertTimezone: _converted_trino, exp.Localtimestamp: _whole_second}
POSTGRES_FROM_TRINO: Rules = {
    exp.StrToTime: _without_zone,
    exp.DateDiff: _whole_difference,
    exp.Sub: _interval_between,
    **WRITTEN_CLOCKS,
    **POSTGRES_PARTS,
}
DUCKDB_CALLS_OF_TRINO: Calls = _remainder("MILLISECOND", 1000)
DUCKDB_CALLS_OF_MYSQL: Calls = {
    "MICROSECOND": lambda arguments: exp.Mod(
        this=call("MICROSECOND", exp.cast(arguments[0].copy(), "TIMESTAMP")), expression=number(_MICROSECONDS)
    )
}
POSTGRES_CALLS_OF_TRINO: Calls = {"MILLISECOND": _milliseconds_postgres}
POSTGRES_CALLS_OF_MYSQL: Calls = {"MICROSECOND": _microseconds_postgres}
