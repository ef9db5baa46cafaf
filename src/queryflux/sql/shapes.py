"""The columns of a query over known tables: names and types, told from its syntax tree.

SQLite, which answers catalog queries, has values with types but no columns with types; clients want to know
them before there is a row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

Columns = list[tuple[str, str]]
"""Names and types, in order. Types: bool, int2, int4, int8, oid, float8, text."""
Known = dict[str, tuple[str, str]]
"""Columns of a source by their names in lower case: the name as it is shown, and the type."""

_CASTS = {
    "SMALLINT": "int2",
    "INT": "int4",
    "BIGINT": "int8",
    "BOOLEAN": "bool",
    "OID": "oid",
    "FLOAT": "float8",
    "DOUBLE": "float8",
    "DOUBLE PRECISION": "float8",
    "REAL": "float8",
    "DECIMAL": "float8",
    "NUMERIC": "float8",
    "TINYINT": "int2",
    "INTEGER": "int4",
}
_CONDITIONS = (
    exp.Predicate,
    exp.Connector,
    exp.Not,
    exp.Exists,
    exp.Any,
    exp.LogicalAnd,
    exp.LogicalOr,
    exp.RegexpLike,
    exp.RegexpILike,
)
_INTEGERS = {"bool": 0, "int2": 1, "int4": 2, "oid": 3, "int8": 4, "float8": 5}


@dataclass
class Scope:
    """What names mean inside a query."""

    tables: Callable[[exp.Table], Mapping[str, str] | None]
    functions: Mapping[str, str]
    sources: list[tuple[str, Known]] = field(default_factory=list)
    ctes: dict[str, Known] = field(default_factory=dict)
    parent: "Scope | None" = None

    def inner(self) -> "Scope":
        """A scope within this one."""
        return Scope(self.tables, self.functions, [], dict(self.ctes), self)

    def column(self, name: str, table: str) -> tuple[str, str] | None:
        """The shown name and type of a column; None when no source has it."""
        for alias, columns in self.sources:
            if (not table or alias == table) and name in columns:
                return columns[name]
        return self.parent.column(name, table) if self.parent is not None else None


def query_columns(query: exp.Expr, outer: Scope) -> Columns:
    """Names and types of what a query returns. Raises whatever ``outer.tables`` raises."""
    scope = outer.inner()
    with_ = query.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        _add_cte(cte, scope)
    if isinstance(query, exp.Subquery):
        return query_columns(query.this, scope)
    if isinstance(query, exp.SetOperation):
        return query_columns(query.this, scope)
    if isinstance(query, exp.Values):
        return _values_columns(query, scope)
    if not isinstance(query, exp.Select):
        return []
    for source in _sources(query):
        scope.sources.append(_source(source, scope))
    columns: Columns = []
    for item in query.expressions:
        if item.is_star:
            columns += _star(item, scope)
        else:
            columns.append((_shown(item, scope), expression_type(item, scope)))
    return columns


def _shown(item: exp.Expr, scope: Scope) -> str:
    if isinstance(item, exp.Column):
        known = scope.column(item.name.lower(), item.table.lower())
        return known[0] if known is not None else item.name
    return item.alias_or_name or "?column?"


def scopes(query: exp.Expr, outer: Scope) -> dict[int, Scope]:
    """The scope of each SELECT in a query, by ``id``: what parameters are compared with."""
    found: dict[int, Scope] = {}
    _walk(query, outer, found)
    return found


def _walk(node: exp.Expr, outer: Scope, found: dict[int, Scope]) -> None:
    scope = outer
    if isinstance(node, exp.Query):
        scope = outer.inner()
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            _add_cte(cte, scope)
        if isinstance(node, exp.Select):
            for source in _sources(node):
                scope.sources.append(_source(source, scope))
            found[id(node)] = scope
    for child in node.iter_expressions():
        _walk(child, scope, found)


def _add_cte(cte: exp.Expr, scope: Scope) -> None:
    names = [column.name for column in cte.args["alias"].columns]
    body = cte.this
    anchor = body.this if isinstance(body, exp.SetOperation) else body
    columns = query_columns(anchor, scope)
    scope.ctes[cte.alias.lower()] = _renamed(_folded(columns), names)


def _folded(columns: Columns) -> Known:
    return {name.lower(): (name, kind) for name, kind in columns}


def _renamed(columns: Known, names: list[str]) -> Known:
    if not names:
        return columns
    kinds = (kind for _, kind in columns.values())
    return {name.lower(): (name, kind) for name, kind in zip(names, kinds, strict=False)}


def _sources(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    sources = [from_.this] if from_ is not None else []
    for join in select.args.get("joins") or ():
        sources.append(join.this)
    nested = [join.this for source in sources for join in source.args.get("joins") or ()]
    return sources + nested


def _source(source: exp.Expr, scope: Scope) -> tuple[str, Known]:
    alias = source.args.get("alias")
    name = source.alias_or_name.lower()
    names = [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    return name, _renamed(_source_columns(source, name, scope), names)


def _source_columns(source: exp.Expr, name: str, scope: Scope) -> Known:
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        if not source.db and source.name.lower() in scope.ctes:
            return scope.ctes[source.name.lower()]
        return _folded(list((scope.tables(source) or {}).items()))
    if isinstance(source, exp.Subquery | exp.Query):
        return _folded(query_columns(source, scope))
    kind = "int4" if source.find(exp.ExplodingGenerateSeries, exp.GenerateSeries) else "text"
    return {name: (name, kind)}


def _values_columns(values: exp.Values, scope: Scope) -> Columns:
    rows = values.expressions
    items = rows[0].expressions if rows and isinstance(rows[0], exp.Tuple) else rows[:1]
    return [(f"column{n}", expression_type(item, scope)) for n, item in enumerate(items, 1)]


def _star(item: exp.Expr, scope: Scope) -> Columns:
    table = item.table.lower() if isinstance(item, exp.Column) else ""
    return [
        shown for alias, columns in scope.sources if not table or alias == table for shown in columns.values()
    ]


def expression_type(node: exp.Expr, scope: Scope) -> str:
    """The type of an expression; text where it cannot be told."""
    if isinstance(node, exp.Column):
        known = scope.column(node.name.lower(), node.table.lower())
        return known[1] if known is not None else "text"
    if isinstance(node, exp.Cast):
        return cast_type(node.to)
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "int4" if node.is_int else "float8"
    if isinstance(node, (exp.Boolean, *_CONDITIONS)):
        return "bool"
    if isinstance(node, exp.Subquery | exp.Query):
        columns = query_columns(node, scope)
        return columns[0][1] if columns else "text"
    if isinstance(node, exp.Case | exp.Coalesce | exp.If):
        return _first_of(node, scope)
    if isinstance(node, exp.DPipe):
        return "text"
    if isinstance(node, exp.Binary) and not isinstance(node, exp.Dot):
        sides = [expression_type(side, scope) for side in (node.this, node.expression)]
        return max(sides, key=lambda kind: _INTEGERS.get(kind, -1))
    return _function_type(node, scope)


def _first_of(node: exp.Expr, scope: Scope) -> str:
    if isinstance(node, exp.Case):
        branches = [branch.args["true"] for branch in node.args["ifs"]] + [node.args.get("default")]
    elif isinstance(node, exp.If):
        branches = [node.args.get("true"), node.args.get("false")]
    else:
        branches = [node.this, *node.expressions]
    for branch in branches:
        if branch is not None and not isinstance(branch, exp.Null | exp.Parameter):
            return expression_type(branch, scope)
    return "text"


def _function_type(node: exp.Expr, scope: Scope) -> str:
    if isinstance(node, exp.Count | exp.RowNumber | exp.Rank | exp.Sum | exp.Length):
        return "int8"
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if not name and isinstance(node, exp.Func):
        name = node.sql_name().lower()
    if name in scope.functions:
        return scope.functions[name]
    keeps = (
        exp.Alias | exp.Paren | exp.Window | exp.Filter | exp.Min | exp.Max | exp.Nullif | exp.Neg | exp.Abs
    )
    if isinstance(node, keeps):
        return expression_type(node.this, scope)
    return "text"


def cast_type(kind: exp.Expr) -> str:
    """The type that a cast gives."""
    if isinstance(kind, exp.DataType) and kind.this == exp.DType.ARRAY:
        return "text"
    return _CASTS.get(kind.sql(dialect="postgres").upper().partition("(")[0].strip(), "text")
