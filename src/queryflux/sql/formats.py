"""Formats: PostgreSQL's TO_CHAR and FORMAT, MySQL's and Trino's DATE_FORMAT. Constant ones only."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from queryflux.sql.rewrites import Rules, call, number, string, text_of, when

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|(?P<code>(?:FM)?(?:HH24|HH12|HH|MI|SS|MS|US|IYYY|YYYY|YY|MONTH|Month|month|MON|Mon|mon|MM'
    r"|DDD|DD|DAY|Day|day|DY|Dy|dy|ID|D|IW|Q|AM|PM|am|pm))(?!th|TH)|(?P<text>.)",
    re.S,
)
_FOREIGN = re.compile(r"Y|CC|WW|W|FM|RM|TH|th|SSSS|TZ|OF|BC|AD|B\.C|A\.M|J|FX|TM|SP")
_NAMES = {"MONTH": "month", "MON": "mon", "DAY": "day", "DY": "dy"}
_DUCKDB = {
    "YYYY": "%Y", "YY": "%y", "IYYY": "%G", "MM": "%m", "FMMM": "%-m", "DD": "%d", "FMDD": "%-d", "DDD": "%j",
    "FMDDD": "%-j", "HH24": "%H", "FMHH24": "%-H", "HH12": "%I", "FMHH12": "%-I", "HH": "%I", "FMHH": "%-I",
    "MI": "%M", "FMMI": "%-M", "SS": "%S", "FMSS": "%-S", "MS": "%g", "US": "%f", "ID": "%u", "IW": "%V",
    "AM": "%p", "PM": "%p", "month": "%B", "mon": "%b", "day": "%A", "dy": "%a",
}  # fmt: skip
_TRINO = {
    "YYYY": "%Y", "YY": "%y", "IYYY": "%x", "MM": "%m", "FMMM": "%c", "DD": "%d", "FMDD": "%e", "DDD": "%j",
    "HH24": "%H", "FMHH24": "%k", "HH12": "%h", "FMHH12": "%l", "HH": "%h", "FMHH": "%l", "MI": "%i",
    "SS": "%s", "US": "%f", "IW": "%v", "AM": "%p", "PM": "%p",
    "month": "%M", "mon": "%b", "day": "%W", "dy": "%a",
}  # fmt: skip
_TO_POSTGRES = {
    "Y": "YYYY", "y": "YY", "G": "IYYY", "m": "MM", "-m": "FMMM", "d": "DD", "-d": "FMDD", "H": "HH24",
    "-H": "FMHH24", "I": "HH12", "-I": "FMHH12", "M": "MI", "S": "SS", "f": "US", "p": "AM", "b": "Mon",
    "B": "FMMonth", "a": "Dy", "A": "FMDay", "j": "DDD", "V": "IW", "D": "FMDDth", "T": "HH24:MI:SS",
}  # fmt: skip
_CODE = re.compile(r"%(?P<code>-?[A-Za-z])|%(?P<percent>%)|(?P<text>[^%]+)", re.S)
_HOLE = re.compile(r"%(?:(?P<place>\d+)\$)?(?P<flag>-?)(?P<width>\d*)(?P<kind>[sIL%])")

_JAVA_HOLE = re.compile(r"%[-0-9.,+ ]*(?P<kind>[a-zA-Z%])")


def _postgres_format(node: exp.Expr) -> str | None:
    """The format as it was written: sqlglot has put its own codes into it."""
    text = text_of(node.args.get("format"))
    if text is None:
        return None
    written = exp.TimeToStr(this=exp.Null(), format=string(text)).sql("postgres")
    return written.removeprefix("TO_CHAR(NULL, '").removesuffix("')").replace("''", "'")


def _pieces(pattern: str) -> list[tuple[str, str]] | None:
    """('text', ...) and ('code', ...); None where there is a code that nothing stands for, or none at all."""
    pieces: list[tuple[str, str]] = []
    rest = ""
    for found in _TOKEN.finditer(pattern):
        kind = str(found.lastgroup)
        rest += found.group() if kind == "text" else "\0"
        pieces.append(("code" if kind == "code" else "text", found.group(kind)))
    if _FOREIGN.search(rest):
        return None
    return pieces if any(kind == "code" for kind, _ in pieces) else None


@dataclass(frozen=True)
class _Writer:
    """A target's formatting function, its codes, and what needs an expression of its own."""

    function: str
    codes: Mapping[str, str]
    specials: Mapping[str, Callable[[exp.Expr], exp.Expr]]

    def __call__(self, node: exp.TimeToStr) -> exp.Expr | None:
        pattern = _postgres_format(node)
        pieces = _pieces(pattern) if pattern is not None else None
        if pieces is None or pattern is None:
            return None
        parts: list[exp.Expr] = []
        plain = ""
        for kind, text in pieces:
            code = text.replace("%", "%%") if kind == "text" else self.plain_code(text)
            if code is not None:
                plain += code
                continue
            special = self.special(text, node.this)
            if special is None:
                return None
            parts += [self.formatted(node.this, plain)] * bool(plain) + [special]
            plain = ""
        if plain:
            parts.append(self.formatted(node.this, plain))
        whole = parts[0]
        for part in parts[1:]:
            whole = exp.DPipe(this=whole, expression=part, safe=False)
        return exp.Paren(this=whole) if len(parts) > 1 else whole

    def formatted(self, moment: exp.Expr, codes: str) -> exp.Expr:
        return call(self.function, moment, string(codes))

    def plain_code(self, text: str) -> str | None:
        """The code of a piece that needs nothing around it."""
        base = text.removeprefix("FM")
        name = _NAMES.get(base.upper())
        if name is None:
            return self.codes.get(text)
        is_padded = name in ("month", "day") and base == text
        return self.codes[name] if base == base.capitalize() and not is_padded else None

    def special(self, text: str, moment: exp.Expr) -> exp.Expr | None:
        base = text.removeprefix("FM")
        name = _NAMES.get(base.upper())
        if name is None:
            write = self.specials.get(text)
            return write(moment) if write is not None else None
        written = self.formatted(moment, self.codes[name])
        if base.isupper() or base.islower():
            written = call("UPPER" if base.isupper() else "LOWER", written)
        is_padded = name in ("month", "day") and base == text
        return call("RPAD", written, number(9), string(" ")) if is_padded else written


def _as_text(function: str, shift: int = 0) -> Callable[[exp.Expr], exp.Expr]:
    def write(moment: exp.Expr) -> exp.Expr:
        part = call(function, moment)
        return exp.cast(exp.Add(this=part, expression=number(shift)) if shift else part, "TEXT")

    return write


def _parsed(node: exp.StrToDate | exp.StrToTime) -> exp.Expr | None:
    """Names of months and days in TO_DATE and TO_TIMESTAMP."""
    pattern = _postgres_format(node)
    pieces = _pieces(pattern) if pattern is not None else None
    if pieces is None:
        return None
    codes = [text if kind == "text" else _parsing_code(text) for kind, text in pieces]
    if None in codes:
        return None
    copied = node.copy()
    copied.set("format", string("".join(code for code in codes if code)))
    return copied


def _parsed_moment(node: exp.StrToTime) -> exp.Expr:
    """TO_TIMESTAMP is in the session's time zone and knows it."""
    return exp.cast(_parsed(node) or node.copy(), "TIMESTAMPTZ")


def _parsing_code(text: str) -> str | None:
    name = _NAMES.get(text.removeprefix("FM").upper())
    return _DUCKDB.get(name or text.upper())


def _postgres_written(node: exp.TimeToStr) -> exp.Expr | None:
    """TO_CHAR with the words of the format in quotes."""
    text = text_of(node.args.get("format"))
    if text is None:
        return None
    parts: list[str] = []
    for found in _CODE.finditer(text):
        if found.lastgroup == "code":
            code = _TO_POSTGRES.get(found["code"])
            if code is None:
                return None
            parts.append(code)
        else:
            words = "%" if found["percent"] else found["text"]
            parts.append(re.sub(r"[A-Za-z]+", r'"\g<0>"', words.replace('"', '\\"')))
    return call("TO_CHAR", node.this, string("".join(parts)))


def _filled(node: exp.Format) -> exp.Expr | None:
    """PostgreSQL's FORMAT is C's; DuckDB's FORMAT has braces."""
    text = text_of(node.this)
    if text is None:
        return None
    parts: list[exp.Expr] = []
    end = place = 0
    for hole in _HOLE.finditer(text):
        parts += [string(text[end : hole.start()])] * (hole.start() > end)
        end = hole.end()
        if hole["kind"] == "%":
            parts.append(string("%"))
            continue
        place = int(hole["place"]) if hole["place"] else place + 1
        if not 0 < place <= len(node.expressions):
            return None
        parts.append(_hole(hole, node.expressions[place - 1]))
    parts += [string(text[end:])] * (end < len(text))
    return call("CONCAT", *parts) if parts else string("")


def _java_format(node: exp.Format) -> exp.Expr | None:
    """Trino's FORMAT is Java's, for which DuckDB has PRINTF, with arguments of the right types."""
    text = text_of(node.this)
    if text is None:
        return None
    kinds = [found["kind"] for found in _JAVA_HOLE.finditer(text) if found["kind"] != "%"]
    if len(kinds) != len(node.expressions):
        return None
    types = {"s": "TEXT", "f": "DOUBLE", "e": "DOUBLE"}
    arguments = [
        exp.cast(value.copy(), types[kind]) if kind in types else value
        for kind, value in zip(kinds, node.expressions, strict=True)
    ]
    return call("PRINTF", node.this, *arguments)


def _hole(hole: re.Match[str], value: exp.Expr) -> exp.Expr:
    filled = value
    if hole["kind"] == "L":
        quoted = exp.DPipe(
            this=exp.DPipe(this=string("'"), expression=_doubled(value, "'"), safe=False),
            expression=string("'"),
            safe=False,
        )
        filled = exp.Coalesce(this=quoted, expressions=[string("NULL")])
    elif hole["kind"] == "I":
        plain = call("REGEXP_FULL_MATCH", exp.cast(value.copy(), "TEXT"), string("[a-z_][a-z0-9_$]*"))
        quoted = exp.DPipe(
            this=exp.DPipe(this=string('"'), expression=_doubled(value, '"'), safe=False),
            expression=string('"'),
            safe=False,
        )
        filled = when(plain, exp.cast(value.copy(), "TEXT"), quoted)
    if hole["width"]:
        return call("PRINTF", string(f"%{hole['flag']}{hole['width']}s"), exp.cast(filled.copy(), "TEXT"))
    return filled


def _doubled(value: exp.Expr, quote: str) -> exp.Expr:
    return call("REPLACE", exp.cast(value.copy(), "TEXT"), string(quote), string(quote * 2))


_duckdb = _Writer(
    "STRFTIME",
    _DUCKDB,
    {
        "Q": _as_text("QUARTER"),
        "D": _as_text("DAYOFWEEK", 1),
        "am": lambda moment: call("LOWER", call("STRFTIME", moment, string("%p"))),
        "pm": lambda moment: call("LOWER", call("STRFTIME", moment, string("%p"))),
    },
)
_trino = _Writer(
    "DATE_FORMAT",
    _TRINO,
    {
        "Q": _as_text("QUARTER"),
        "ID": _as_text("DAY_OF_WEEK"),
        "D": lambda moment: exp.cast(
            exp.Add(
                this=exp.Mod(this=call("DAY_OF_WEEK", moment), expression=number(7)), expression=number(1)
            ),
            "TEXT",
        ),
        "MS": lambda moment: call("SUBSTR", call("DATE_FORMAT", moment, string("%f")), number(1), number(3)),
        "am": lambda moment: call("LOWER", call("DATE_FORMAT", moment, string("%p"))),
        "pm": lambda moment: call("LOWER", call("DATE_FORMAT", moment, string("%p"))),
    },
)


def _or_unknown(node: exp.TimeToStr) -> exp.Expr | None:
    """What cannot be written is an error on DuckDB, by a name that it does not know, not another text."""
    written = _duckdb(node)
    pattern = _postgres_format(node)
    if written is None and pattern is not None and re.search(r"[A-Za-z]{2}|Q|D|J", pattern):
        return call("TO_CHAR", node.this, string(pattern))
    return written


DUCKDB_FROM_POSTGRES: Rules = {
    exp.TimeToStr: _or_unknown,
    exp.StrToDate: _parsed,
    exp.StrToTime: _parsed_moment,
    exp.Format: _filled,
}
DUCKDB_FROM_TRINO: Rules = {exp.Format: _java_format}
TRINO_FROM_POSTGRES: Rules = {exp.TimeToStr: _trino, exp.StrToDate: _parsed, exp.StrToTime: _parsed_moment}
POSTGRES_FORMATS: Rules = {exp.TimeToStr: _postgres_written}
