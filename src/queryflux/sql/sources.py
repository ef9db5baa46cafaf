"""Rows and where they come from: VALUES, sets in the select list, DISTINCT ON, ties, ANY of an array."""

from sqlglot import exp

from queryflux.sql.rewrites import Rule, Rules, call, integer_of, number

_SET = (exp.Explode, exp.ExplodingGenerateSeries)
_TAIL = ("order", "limit", "offset")


def _values(prefix: str, first: int) -> Rule:
    """VALUES has columns of these names where nobody gives others."""

    def rule(node: exp.Values) -> exp.Expr | None:
        parent, alias = node.parent, node.args.get("alias")
        is_source = isinstance(parent, exp.From | exp.Join)
        is_query = parent is None or (isinstance(parent, exp.CTE) and not parent.alias_column_names)
        if not node.expressions or not (is_source or is_query) or (alias is not None and alias.columns):
            return None
        width = len(node.expressions[0].expressions)
        names = [exp.to_identifier(f"{prefix}{first + n}") for n in range(width)]
        copied = node.copy()
        tail = {name: copied.args.pop(name) for name in _TAIL if copied.args.get(name) is not None}
        table = alias.this.copy() if alias is not None and alias.this else exp.to_identifier("_values")
        copied.set("alias", exp.TableAlias(this=table, columns=names))
        if is_source:
            return copied if not tail else None
        select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=copied))
        for name, part in tail.items():
            select.set(name, part)
        return select

    return rule


def _sets(node: exp.Select) -> exp.Expr | None:
    """Functions that return rows stand beside the tables on Trino, not in the select list."""
    places = [n for n, item in enumerate(node.expressions) if isinstance(item.unalias(), _SET)]
    if not places or node.args.get("group") or node.args.get("distinct"):
        return None
    select = node.copy()
    items = list(select.expressions)
    names = [exp.to_identifier(f"_set{n}") for n in places]
    arrays = [_array(items[n].unalias()) for n in places]
    for place, name in zip(places, names, strict=True):
        label = exp.to_identifier(items[place].alias or f"col{place}", quoted=True)
        items[place] = exp.Alias(this=exp.column(name.copy(), table="_sets"), alias=label)
    select.set("expressions", items)
    alias = exp.TableAlias(this=exp.to_identifier("_sets"), columns=names)
    unnest = exp.Unnest(expressions=arrays, alias=alias)
    if select.args.get("from_") is None:
        select.set("from_", exp.From(this=unnest))
    else:
        select.append("joins", exp.Join(this=unnest, kind="CROSS"))
    return select


def _array(item: exp.Expr) -> exp.Expr:
    if isinstance(item, exp.Explode):
        items: exp.Expr = item.this
        return items.copy()
    step = item.args.get("step")
    return call("SEQUENCE", item.args["start"], item.args["end"], step if step is not None else number(1))


def _distinct_on(node: exp.Select) -> exp.Expr | None:
    """Trino has no DISTINCT ON: rows are numbered within their groups, the first ones taken, and only then
    ordered and counted."""
    distinct = node.args.get("distinct")
    on = distinct.args.get("on") if distinct is not None else None
    if on is None or any(item.is_star for item in node.expressions):
        return None
    keys = [key.copy() for key in (on.expressions or [on.this])]
    items = [
        item if isinstance(item, exp.Alias) else exp.alias_(item, item.alias_or_name or f"_col{n}")
        for n, item in enumerate(node.expressions)
    ]
    aliases = {item.alias: item.this for item in items}
    inner = node.copy()
    tail = {name: inner.args.pop(name) for name in (*_TAIL, "with_") if inner.args.get(name) is not None}
    inner.set("distinct", None)
    order = [ordered.copy() for ordered in tail["order"].expressions] if "order" in tail else []
    for ordered in order:
        ordered.set("this", _meant(ordered.this, items, aliases))
    numbered = exp.Window(
        this=exp.RowNumber(),
        partition_by=[_meant(key, items, aliases) for key in keys],
        order=exp.Order(
            expressions=[ordered.copy() for ordered in order] or [exp.Ordered(this=keys[0].copy())]
        ),
    )
    sorting = [exp.alias_(ordered.this.copy(), f"_order{n}") for n, ordered in enumerate(order)]
    inner.set(
        "expressions", [*(item.copy() for item in items), *sorting, exp.alias_(numbered, "_row_number")]
    )
    outer = exp.Select(
        expressions=[exp.Column(this=item.args["alias"].copy()) for item in items],
        from_=exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_rows")))),
        where=exp.Where(this=exp.EQ(this=exp.column("_row_number"), expression=number(1))),
    )
    for n, ordered in enumerate(order):
        ordered.set("this", exp.column(f"_order{n}"))
    tail["order"] = exp.Order(expressions=order) if order else None
    for name, part in tail.items():
        outer.set(name, part)
    return outer


def _meant(key: exp.Expr, items: list[exp.Expr], aliases: dict[str, exp.Expr]) -> exp.Expr:
    """What a sorting key stands for: a position, the name of a column of the result, or itself."""
    place = integer_of(key)
    if place is not None and 0 < place <= len(items):
        item: exp.Expr = items[place - 1].this
        return item.copy()
    if isinstance(key, exp.Column) and not key.table and key.name in aliases:
        return aliases[key.name].copy()
    return key.copy()


def _ties(node: exp.Select) -> exp.Expr | None:
    """DuckDB has no FETCH ... WITH TIES."""
    fetch, order = node.args.get("limit"), node.args.get("order")
    if not isinstance(fetch, exp.Fetch):
        return None
    options = fetch.args.get("limit_options")
    if options is None or not options.args.get("with_ties") or order is None or node.args.get("offset"):
        return None
    if node.args.get("distinct") or node.args.get("qualify"):
        return None
    copied = node.copy()
    rank = exp.Window(this=exp.Rank(expressions=[]), order=order.copy())
    count = fetch.args.get("count")
    copied.set("limit", None)
    bound = exp.LTE(this=rank, expression=count.copy() if count is not None else number(1))
    copied.set("qualify", exp.Qualify(this=bound))
    return copied


def _grouped_by_alias(node: exp.Select) -> exp.Expr | None:
    """Trino groups by columns of the tables and by places, not by names of the result. (A column of a table
    wins over such a name; which there are nobody knows here.)"""
    group = node.args.get("group")
    if group is None:
        return None
    aliases = {item.alias: item.this for item in node.expressions if isinstance(item, exp.Alias)}
    changed = False
    keys = []
    for key in group.expressions:
        meant = aliases.get(key.name) if isinstance(key, exp.Column) and not key.table else None
        if meant is not None and meant.find(exp.AggFunc, exp.Window) is not None:
            meant = None  # nobody groups by one: the key is a column
        if meant is not None and all(column.name != key.name for column in meant.find_all(exp.Column)):
            changed = True
            key = meant.copy()
        keys.append(key.copy())
    if not changed:
        return None
    copied = node.copy()
    copied.args["group"].set("expressions", keys)
    return copied


def _any_of(node: exp.Expr) -> exp.Expr | None:
    """``x = ANY (array)`` and ``x <> ALL (array)`` for Trino, which compares with sub-queries only."""
    right = node.expression
    is_equal = isinstance(node, exp.EQ)
    if isinstance(right, exp.Any):
        items, is_any = right.this.unnest(), True
    elif isinstance(right, exp.Anonymous) and right.name.upper() == "ALL" and len(right.expressions) == 1:
        items, is_any = right.expressions[0].unnest(), False
    elif isinstance(right, exp.All):
        items, is_any = right.this.unnest(), False
    else:
        return None
    if is_equal != is_any or isinstance(items, exp.Query):
        return None
    found = call("CONTAINS", items, node.this)
    return found if is_any else exp.Not(this=found)


def _named_series(node: exp.Table) -> exp.Expr | None:
    """A set as a table is called by its function."""
    if not isinstance(node.this, exp.ExplodingGenerateSeries) or node.args.get("alias") is not None:
        return None
    copied = node.copy()
    copied.set("alias", exp.TableAlias(this=exp.to_identifier("generate_series")))
    return copied


def _named_unnest(node: exp.Unnest) -> exp.Expr | None:
    if not isinstance(node.parent, exp.From | exp.Join) or node.args.get("alias") or node.args.get("offset"):
        return None
    if len(node.expressions) != 1:
        return None
    copied = node.copy()
    name = exp.to_identifier("unnest", quoted=True)
    copied.set("alias", exp.TableAlias(this=name, columns=[name.copy()]))
    return copied


TRINO_FROM_POSTGRES: Rules = {
    exp.Table: _named_series,
    exp.Unnest: _named_unnest,
    exp.Values: _values("column", 1),
    exp.Select: lambda node: _distinct_on(node) or _sets(node) or _grouped_by_alias(node),
    exp.EQ: _any_of,
    exp.NEQ: _any_of,
}
DUCKDB_FROM_POSTGRES: Rules = {exp.Values: _values("column", 1), exp.Select: _ties}
TRINO_FROM_MYSQL: Rules = {exp.Select: _grouped_by_alias}


def _series_array(node: exp.GenerateSeries) -> exp.Expr | None:
    """Trino's SEQUENCE is an array, PostgreSQL's GENERATE_SERIES rows."""
    if isinstance(node.parent, exp.Table | exp.From):
        return None
    parts = [node.args.get(name) for name in ("start", "end", "step")]
    series = call("GENERATE_SERIES", *(part for part in parts if part is not None))
    return call("ARRAY", exp.select(series))


def _called(node: exp.Subquery) -> exp.Expr | None:
    """PostgreSQL before 16 wants a name for a query that stands as a table."""
    parent = node.parent
    if not isinstance(parent, exp.From | exp.Join) or node.args.get("alias") is not None:
        return None
    copied = node.copy()
    name = "_query" if isinstance(parent, exp.From) else f"_query{(parent.index or 0) + 1}"
    copied.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
    return copied


POSTGRES_FROM_TRINO: Rules = {
    exp.Values: _values("_col", 0),
    exp.GenerateSeries: _series_array,
    exp.Subquery: _called,
}
FROM_TRINO: Rules = {exp.Values: _values("_col", 0)}
DUCKDB_FROM_TRINO: Rules = {**FROM_TRINO, exp.Select: _ties}
