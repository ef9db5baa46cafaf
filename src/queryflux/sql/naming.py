"""The names of columns that a statement does not name, as the source dialect would have given them."""

from sqlglot import exp

from queryflux.sql.lexer import tokens

PARAMETER_PREFIX = "__qf_param_"
"""``?`` becomes a column of this name and its number before parsing, so that every clause takes it."""
_BEFORE_ITEMS = frozenset(
    {"SELECT", "ALL", "DISTINCT", "DISTINCTROW", "SQL_CALC_FOUND_ROWS", "STRAIGHT_JOIN"}
)
_AFTER_ITEMS = frozenset({"FROM", "WHERE", "ORDER", "LIMIT", "GROUP", "HAVING", "UNION", "INTO", "FOR", ";"})
_LONGEST_NAME = 256
_PG_TYPE_NAMES = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DOUBLE PRECISION": "float8",
    "REAL": "float4",
    "DECIMAL": "numeric",
    "BOOLEAN": "bool",
    "CHAR": "bpchar",
    "INT[]": "int4",
    "BIGINT[]": "int8",
}
_NAMED_BY_OPERAND = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.Paren, exp.Bracket)
_PG_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_PG_FUNCTIONS = {
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.CurrentVersion: "version",
    exp.CurrentSchema: "current_schema",
    exp.TimestampTrunc: "date_trunc",
    exp.DateTrunc: "date_trunc",
    exp.StrPosition: "position",
    exp.GroupConcat: "string_agg",
    exp.TimeToStr: "to_char",
    exp.Pow: "power",
    exp.Ceil: "ceil",
    exp.Substring: "substring",
    exp.StrToDate: "to_date",
    exp.UnixToTime: "to_timestamp",
    exp.Rand: "random",
    exp.Uuid: "gen_random_uuid",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}


def postgres_names(root: exp.Expr, text: str) -> exp.Expr:
    """Name what PostgreSQL would name ``count``, ``?column?`` and so on (its manual, 7.3.2). ``text`` is the
    statement that was parsed."""
    select = _first_select(root)
    if select is not None:
        _set_names(select, [_postgres_name(item, text) for item in select.expressions])
    if isinstance(root, exp.Create) and isinstance(root.expression, exp.Query):
        _name_columns_of(root.expression, text)
    for source in root.find_all(exp.CTE, exp.Subquery):
        is_source = isinstance(source, exp.CTE) or isinstance(
            source.parent, exp.From | exp.Join | exp.Lateral
        )
        if is_source and not source.alias_column_names:
            _name_columns_of(source.this, text)
    return root


def _name_columns_of(query: exp.Expr, text: str) -> None:
    """Names that a table has, and that other parts of the statement may speak of."""
    inner = _first_select(query)
    if inner is not None:
        names = [_postgres_name(item, text) for item in inner.expressions]
        _set_names(inner, ["" if name == "?column?" else name for name in names])


def _set_names(select: exp.Select, names: list[str]) -> None:
    items = [_named(item, name) for item, name in zip(select.expressions, names, strict=True)]
    select.set("expressions", items)


def trino_names(root: exp.Expr) -> exp.Expr:
    """Name what Trino would name ``_col0``, ``_col1`` and so on."""
    select = _first_select(root)
    if select is None or any(item.is_star for item in select.expressions):
        return root
    items = [
        item if isinstance(item, exp.Column | exp.Alias | exp.Dot) else _named(item, f"_col{n}")
        for n, item in enumerate(select.expressions)
    ]
    select.set("expressions", items)
    return root


def mysql_names(root: exp.Expr, text: str) -> exp.Expr:
    """Name columns by their text, as MySQL does; of ``text``, only a leading SELECT is looked at."""
    select = _first_select(root)
    written = select_items(text)
    if select is None or len(written) != len(select.expressions):
        return root
    items = [
        item if _has_name(item) else _named(item, name)
        for item, name in zip(select.expressions, written, strict=True)
    ]
    select.set("expressions", items)
    return root


def _has_name(item: exp.Expr) -> bool:
    if isinstance(item, exp.Column) and item.name.startswith(PARAMETER_PREFIX):
        return False
    return isinstance(item, exp.Column | exp.Alias | exp.Dot) or bool(item.is_star)


def select_items(text: str) -> list[str]:
    """The texts between the commas of a select list; none when the text does not begin with SELECT."""
    items: list[str] = []
    depth, start = 0, -1
    end = len(text)
    for kind, position, stop in tokens(text, "mysql"):
        word = text[position:stop].upper() if kind in ("word", "operator") else ""
        if start < 0:
            if kind in ("space", "comment"):
                continue
            if word not in _BEFORE_ITEMS and not items:
                if position == 0 or not text[:position].strip().upper().startswith("SELECT"):
                    return []
                start = position
        depth += (word == "(") - (word == ")")
        if depth == 0 and word == ",":
            items.append(text[start:position].strip())
            start = stop
        elif depth == 0 and word in _AFTER_ITEMS:
            end = position
            break
    if start >= 0:
        items.append(text[start:end].strip())
    return [item[:_LONGEST_NAME] for item in items]


def _first_select(root: exp.Expr) -> exp.Select | None:
    """The SELECT that names the columns of a query; None for anything else."""
    while isinstance(root, exp.SetOperation | exp.Subquery):
        root = root.this
    return root if isinstance(root, exp.Select) else None


def _named(item: exp.Expr, name: str) -> exp.Expr:
    if not name:
        return item
    if isinstance(item, exp.UDTF):  # whose own alias would be a table's
        return exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))
    return exp.alias_(item, name, quoted=True, copy=False)


def _postgres_name(item: exp.Expr, text: str) -> str:
    """The name to give; empty to leave it alone."""
    if isinstance(item, exp.Column | exp.Alias | exp.Dot | exp.Aliases) or item.is_star:
        return ""
    return derived_name(item, text) or "?column?"


def derived_name(item: exp.Expr, text: str = "") -> str:
    """The name that PostgreSQL derives from an expression; empty for ``?column?``. ``text`` is the statement
    that it was parsed from: functions are called as they were written."""
    return _derived(item, text)[0]


def _derived(item: exp.Expr, text: str) -> tuple[str, bool]:
    """The name, and whether it is a weak one: a type's, which an outer cast replaces."""
    if isinstance(item, exp.Column | exp.Alias | exp.Dot):
        return item.alias_or_name, False
    if isinstance(item, exp.Cast):
        if isinstance(item.this, exp.IntDiv):
            return "div", False
        name, weak = _derived(item.this, text)
        return (name, False) if name and not weak else (_type_name(item.to), True)
    if isinstance(item, _NAMED_BY_OPERAND):
        return _derived(item.this, text)
    if isinstance(item, exp.Subquery):
        inner = _first_select(item)
        return _derived(inner.expressions[0], text) if inner is not None and inner.expressions else ("", True)
    if isinstance(item, exp.Case):
        default = item.args.get("default")
        name, weak = _derived(default, text) if default is not None else ("", True)
        return (name, False) if name and not weak else ("case", True)
    if isinstance(item, exp.Boolean):
        return "bool", True
    if isinstance(item, exp.Interval):
        return "interval", True
    return _function_name(item, text), False


def _type_name(kind: exp.Expr) -> str:
    name = kind.sql(dialect="postgres").split("(")[0]
    return _PG_TYPE_NAMES.get(name, name.lower()).removesuffix("[]")


def _function_name(item: exp.Expr, text: str) -> str:
    start, end = item.meta.get("start", 0), item.meta.get("end", -1)
    if isinstance(item, exp.CurrentTimestamp) and end - start == 2:
        return "now"  # the parser knows it from CURRENT_TIMESTAMP only by its length
    if isinstance(item, exp.Trim):
        return _PG_TRIMS.get(str(item.args.get("position") or "").upper(), "btrim")
    if isinstance(item, exp.Func | exp.Binary):
        written = text[start : end + 1]
        if written.isidentifier():
            return written.lower()
    if isinstance(item, exp.AtTimeZone):
        return "timezone"
    if isinstance(item, exp.Anonymous):
        return item.name.lower()
    if isinstance(item, exp.Func) and not isinstance(item, exp.Connector | exp.Binary):
        return _PG_FUNCTIONS.get(type(item)) or item.sql_name().lower()
    return ""
