"""The syntax tree of a catalog query, changed into one that SQLite takes. See ``lite``."""

from collections import defaultdict
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from queryflux.model.errors import NotSupported
from queryflux.sql.fixes import escape_strings
from queryflux.sql.lite import Catalog, LiteQuery, no_such_table, not_a_query
from queryflux.sql.naming import derived_name, select_items
from queryflux.sql.shapes import Scope, cast_type, expression_type, query_columns, scopes

_OBJECT_CASTS = frozenset({"REGCLASS", "REGTYPE", "REGNAMESPACE", "REGPROC", "REGROLE", "REGPROCEDURE"})
_TEXT_CASTS = frozenset({"TEXT", "VARCHAR", "CHAR", "NAME", "BPCHAR"})
_PLAIN_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentDatabase: "current_database",
    exp.CurrentSchema: "current_schema",
    exp.CurrentSchemas: "current_schemas",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentRole: "current_role",
    exp.CurrentVersion: "version",
    exp.ArrayToString: "array_to_string",
    exp.MD5: "md5",
}
_BARE: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
_BARE["postgres"] = frozenset({"user", "current_role", "session_user", "system_user", "current_schema"})
_BARE["trino"] = frozenset({"current_schema", "current_catalog", "current_user"})
_CATALOG_COLUMNS = ("table_catalog", "catalog_name")


def rewrite(tree: exp.Expr, dialect: str, catalog: Catalog, text: str) -> LiteQuery:
    """The query for SQLite; ``text`` is what ``tree`` was parsed from. Raises as ``lite.lite_query``."""
    if not isinstance(tree, exp.Query) or tree.find(exp.Command, exp.Into):
        raise not_a_query()
    resolver = _Resolver(catalog, dialect)
    root = Scope(resolver.columns, catalog.functions)
    columns = query_columns(tree, root)
    columns = _labelled(tree, columns, dialect, text)
    parameter_types = _parameters(tree, root)
    resolver.rename(tree)
    for column in list(tree.find_all(exp.Column)):
        if not column.table and not column.this.args.get("quoted") and column.name.lower() in _BARE[dialect]:
            column.replace(_call(column.name.lower()))
    for change in _CHANGES:
        tree = change(tree)
    for name in tree.find_all(exp.Identifier):
        if name.args.get("quoted"):
            # SQLite takes "name" for a string when there is no such column, but never `name`.
            name.set("this", "`" + name.name.replace("`", "``") + "`")
            name.set("quoted", False)
    sql = tree.sql(dialect="sqlite", unsupported_level=ErrorLevel.IGNORE, comments=False)
    return LiteQuery(sql, tuple(columns), parameter_types, frozenset(resolver.used))


class _Resolver:
    """Which table of the catalog a name means."""

    def __init__(self, catalog: Catalog, dialect: str) -> None:
        self._catalog = catalog
        self._dialect = dialect
        self.used: set[str] = set()

    def full_name(self, table: exp.Table) -> str | None:
        parts = [part.name.lower() for part in table.parts]
        tables = self._catalog.tables
        while parts:
            name = ".".join(parts)
            if name in tables:
                return name
            if len(parts) == 1:
                return next((f"{s}.{name}" for s in self._catalog.search if f"{s}.{name}" in tables), None)
            parts = parts[1:] if len(parts) == 3 else []
        return None

    def columns(self, table: exp.Table) -> dict[str, str]:
        name = self.full_name(table)
        if name is None:
            raise no_such_table(".".join(part.name for part in table.parts))
        return dict(self._catalog.tables[name])

    def rename(self, tree: exp.Expr) -> None:
        ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        for table in list(tree.find_all(exp.Table)):
            if not isinstance(table.this, exp.Identifier) or (not table.db and table.name.lower() in ctes):
                continue
            name = self.full_name(table)
            if name is None:
                raise no_such_table(".".join(part.name for part in table.parts))
            self.used.add(name)
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name))
            renamed = exp.Table(this=exp.to_identifier(name, quoted=True))
            scoped = (
                _catalog_filter(table, name, self._catalog.tables[name]) if self._dialect == "trino" else None
            )
            source: exp.Expr = renamed
            if scoped is not None:
                source = exp.Subquery(this=exp.select("*").from_(renamed).where(scoped))
            source.set("alias", alias)
            source.set("joins", table.args.get("joins"))
            table.replace(source)
        for column in tree.find_all(exp.Column):
            column.set("db", None)
            column.set("catalog", None)


def _catalog_filter(table: exp.Table, name: str, columns: object) -> exp.Expr | None:
    """Trino's information schema is that of one catalog."""
    if not name.startswith("information_schema."):
        return None
    column = next((c for c in _CATALOG_COLUMNS if c in columns), None)  # type: ignore[operator]
    if column is None:
        return None
    if table.catalog:
        return exp.EQ(this=exp.column(column), expression=exp.Literal.string(table.catalog.lower()))
    wanted = _call("session_catalog")
    return exp.EQ(this=exp.column(column), expression=_call("coalesce", wanted, exp.column(column)))


def _labelled(
    tree: exp.Expr, columns: list[tuple[str, str]], dialect: str, text: str
) -> list[tuple[str, str]]:
    """Labels as a server of the dialect gives them to columns that the query does not name."""
    select: exp.Expr = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    items = select.expressions if isinstance(select, exp.Select) else []
    if len(items) != len(columns) or any(isinstance(item, exp.Star) for item in items):
        return columns
    written = select_items(text) if dialect == "mysql" else []
    labels = []
    for number, (item, (name, _)) in enumerate(zip(items, columns, strict=True)):
        if isinstance(item, exp.Alias | exp.Column):
            labels.append(_own_label(item, name, dialect))
        elif dialect == "trino":
            labels.append(f"_col{number}")
        elif len(written) == len(items):
            labels.append(written[number])
        else:
            labels.append(derived_name(item) or "?column?")
    return [(label, kind) for label, (_, kind) in zip(labels, columns, strict=True)]


def _own_label(item: exp.Expr, name: str, dialect: str) -> str:
    """PostgreSQL folds names that are not quoted."""
    given = item.args["alias"] if isinstance(item, exp.Alias) else item.this
    quoted = isinstance(given, exp.Identifier) and given.args.get("quoted")
    return name.lower() if dialect == "postgres" and not quoted else name


def _parameters(tree: exp.Expr, root: Scope) -> tuple[str, ...]:
    """Number the parameters for SQLite and say what type each has, by its cast or by what it is compared
    with."""
    by_select = scopes(tree, root)
    types: dict[int, str] = {}
    unnumbered = 0
    for node in list(tree.find_all(exp.Parameter, exp.Placeholder, bfs=False)):
        if isinstance(node, exp.Parameter) and isinstance(node.this, exp.Literal):
            number = int(node.name)
        else:
            unnumbered += 1
            number = unnumbered
        types.setdefault(number, _parameter_type(node, by_select, root))
        node.replace(exp.Var(this=f"?{number}"))
    return tuple(types.get(n, "text") for n in range(1, max(types, default=0) + 1))


def _parameter_type(node: exp.Expr, by_select: dict[int, Scope], root: Scope) -> str:
    parent = node.parent
    if isinstance(parent, exp.Cast):
        if isinstance(parent.to, exp.DataType) and parent.to.this == exp.DType.ARRAY:
            return f"{cast_type(parent.to.expressions[0])}[]"
        return cast_type(parent.to)
    select = node.find_ancestor(exp.Select)
    scope = by_select.get(id(select), root)
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, exp.Any | exp.All) and isinstance(parent.parent, exp.Binary):
        return f"{expression_type(parent.parent.this, scope)}[]"
    if isinstance(parent, exp.Binary) and not isinstance(parent, exp.Like):
        other = parent.expression if parent.this is node else parent.this
        return expression_type(other, scope)
    if isinstance(parent, exp.In):
        return expression_type(parent.this, scope)
    return "text"


def _inner_first(tree: exp.Expr, *kinds: type[Any]) -> list[Any]:
    """Nodes of these kinds, children before parents: what replaces a parent holds changed children."""
    return list(tree.find_all(*kinds))[::-1]


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _functions(tree: exp.Expr) -> exp.Expr:
    """Functions by the names they are registered under, also where a schema stands before them."""
    tree = escape_strings(tree)
    for dot in _inner_first(tree, exp.Dot):
        if isinstance(dot.expression, exp.Func) and isinstance(dot.this, exp.Identifier):
            dot.replace(dot.expression)
        elif isinstance(dot.expression, exp.Identifier) and isinstance(dot.this, exp.Paren):
            dot.replace(exp.Null())  # a field of a composite; only empty tables have any
    for node in _inner_first(tree, *_PLAIN_NAMES):
        arguments = [node.this, *node.expressions] if isinstance(node.this, exp.Expr) else node.expressions
        extra = node.args.get("expression")
        values = [a for a in (*arguments, extra) if isinstance(a, exp.Expr)]
        node.replace(_call(_PLAIN_NAMES[type(node)], *(value.copy() for value in values)))
    for session in _inner_first(tree, exp.SessionParameter):
        session.replace(_call("session_variable", exp.Literal.string(session.name)))
    for bracket in _inner_first(tree, exp.Bracket):
        index = bracket.expressions[0]
        bracket.replace(_call("pg_element", bracket.this.copy(), index.copy()))
    for rows in _inner_first(tree, exp.Explode):
        rows.replace(_call("unnest", rows.this.copy()))
    for both in _inner_first(tree, exp.LogicalAnd):
        both.replace(exp.Min(this=both.this.copy()))
    for either in _inner_first(tree, exp.LogicalOr):
        either.replace(exp.Max(this=either.this.copy()))
    return tree


def _patterns(tree: exp.Expr) -> exp.Expr:
    """Regular expressions and LIKE, whose escape character is a backslash unless another is named."""
    for collate in list(tree.find_all(exp.Collate)):  # SQLite knows none of the clients' collations
        collate.replace(collate.this)
    for node in _inner_first(tree, exp.RegexpLike, exp.RegexpILike):
        name = "pg_iregex" if isinstance(node, exp.RegexpILike) else "pg_regex"
        node.replace(_call(name, node.this.copy(), node.expression.copy()))
    for like in _inner_first(tree, exp.Like, exp.ILike):
        parent = like.parent
        plain: exp.Expr = like
        if isinstance(like, exp.ILike):
            sides = [exp.Lower(this=side.copy()) for side in (like.this, like.expression)]
            plain = exp.Like(this=sides[0], expression=sides[1], negate=like.args.get("negate"))
        if isinstance(parent, exp.Escape):
            like.replace(plain)
        else:
            like.replace(exp.Escape(this=plain.copy(), expression=exp.Literal.string("\\")))
    return tree


def _arrays(tree: exp.Expr) -> exp.Expr:
    """``= ANY``, ``<> ALL``, array constructors and aggregates."""
    for node in _inner_first(tree, exp.EQ, exp.NEQ):
        right = node.expression
        quantified = isinstance(right, exp.Any) or (
            isinstance(right, exp.Anonymous) and right.name.upper() in ("ALL", "ANY", "SOME")
        )
        if isinstance(right, exp.All):
            quantified = True
        if not quantified:
            continue
        inner = right.this if isinstance(right, exp.Any | exp.All) else right.expressions[0]
        inner = inner.unnest() if isinstance(inner, exp.Expr) else inner
        test: exp.Expr
        if isinstance(inner, exp.Query):
            test = exp.In(this=node.this.copy(), query=exp.Subquery(this=inner.copy()))
        elif isinstance(inner, exp.Array) and not inner.find(exp.Query):
            test = exp.In(this=node.this.copy(), expressions=[item.copy() for item in inner.expressions])
        else:
            test = _call("pg_any", node.this.copy(), inner.copy())
        node.replace(exp.Not(this=test) if isinstance(node, exp.NEQ) else test)
    for array in _inner_first(tree, exp.Array):
        items = array.expressions
        if len(items) == 1 and isinstance(items[0], exp.Query):
            array.replace(_array_of_query(items[0]))
        else:
            array.replace(_call("pg_list", *(item.copy() for item in items)))
    for aggregate in _inner_first(tree, exp.ArrayAgg):
        inner = aggregate.this
        value = inner.this if isinstance(inner, exp.Order) else inner
        aggregate.replace(_call("pg_array", value.copy()))
    return tree


def _array_of_query(query: exp.Query) -> exp.Expr:
    inner = query.copy()
    select: exp.Expr = inner
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    if isinstance(select, exp.Select):
        first = select.expressions[0]
        value = first.this if isinstance(first, exp.Alias) else first
        select.set("expressions", [exp.alias_(value.copy(), "item")])
    outer = exp.select(_call("pg_array", exp.column("item"))).from_(exp.Subquery(this=inner, alias="items"))
    return exp.Subquery(this=outer)


def _table_functions(tree: exp.Expr) -> exp.Expr:
    """Set-returning functions in FROM, and column aliases of subqueries."""
    for node in _inner_first(tree, exp.Table, exp.Unnest):
        body = node if isinstance(node, exp.Unnest) else node.this
        if isinstance(body, exp.Identifier):
            continue
        if isinstance(body, exp.ExplodingGenerateSeries | exp.GenerateSeries):
            values = _call("pg_series", body.args["start"].copy(), body.args["end"].copy())
        elif isinstance(body, exp.Unnest):
            values = _call("pg_json", body.expressions[0].copy())
        elif isinstance(body, exp.Anonymous) and body.name.lower() == "unnest":
            values = _call("pg_json", *(item.copy() for item in body.expressions[:1]))
        elif isinstance(body, exp.Anonymous) and body.name.lower() == "pg_get_keywords":
            values = _call("pg_json", body.copy())
        else:
            raise NotSupported(f"The catalog has no table function {body.sql()[:60]}.")
        alias = node.args.get("alias")
        keywords = isinstance(body, exp.Anonymous) and body.name.lower() == "pg_get_keywords"
        name = alias.name if alias is not None and alias.name else "unnest"
        column = alias.columns[0].name if alias is not None and alias.columns else name
        column = "word" if keywords else column
        each = exp.Table(this=_call("json_each", values))
        rows = exp.select(exp.alias_(exp.column("value"), column)).from_(each)
        node.replace(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(name))))
    for subquery in _inner_first(tree, exp.Subquery):
        alias = subquery.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.columns:
            _push_names(subquery, alias)
    for values_node in _inner_first(tree, exp.Values):
        alias = values_node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.name:
            _wrap_values(values_node, alias)
    return tree


def _push_names(subquery: exp.Subquery, alias: exp.TableAlias) -> None:
    inner = subquery.this
    names = [column.name for column in alias.columns]
    while isinstance(inner, exp.SetOperation | exp.Subquery):
        inner = inner.this
    if isinstance(inner, exp.Select):
        items = [item.this if isinstance(item, exp.Alias) else item for item in inner.expressions]
        named = [exp.alias_(item.copy(), name) for item, name in zip(items, names, strict=False)]
        inner.set("expressions", named + inner.expressions[len(named) :])
    elif isinstance(inner, exp.Values):
        columns = [exp.alias_(exp.column(f"column{n}"), name) for n, name in enumerate(names, 1)]
        subquery.set("this", exp.select(*columns).from_(exp.Subquery(this=inner.copy())))
    alias.set("columns", [])


def _wrap_values(values: exp.Values, alias: exp.TableAlias) -> None:
    names = [column.name for column in alias.columns]
    bare = values.copy()
    bare.set("alias", None)
    columns: list[exp.Expr] = [
        exp.alias_(exp.column(f"column{n}"), name) for n, name in enumerate(names, 1)
    ] or [exp.Star()]
    rows = exp.select(*columns).from_(exp.Subquery(this=bare))
    values.replace(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(alias.name))))


def _casts(tree: exp.Expr) -> exp.Expr:
    """Object identifiers: names become numbers to compare, numbers become names to show."""
    for cast in _inner_first(tree, exp.Cast):
        kind = cast.to.sql(dialect="postgres").upper().partition("(")[0]
        if kind in _OBJECT_CASTS:
            cast.replace(_object_cast(cast, kind))
        elif cast_type(cast.to) in ("int2", "int4", "int8", "oid", "bool"):
            cast.set("to", exp.DataType.build("INT"))
        elif cast_type(cast.to) == "float8":
            cast.set("to", exp.DataType.build("DOUBLE"))
        else:
            cast.set("to", exp.DataType.build("TEXT"))
    return tree


def _object_cast(cast: exp.Cast, kind: str) -> exp.Expr:
    inner = cast.this
    label = exp.Literal.string(kind.lower())
    named = isinstance(inner, exp.Literal) and inner.is_string
    named = named or isinstance(inner, exp.Var) or (isinstance(inner, exp.Cast) and _is_text(inner))
    shown = isinstance(cast.parent, exp.Select | exp.Alias | exp.Ordered)
    shown = shown or (isinstance(cast.parent, exp.Cast) and _is_text(cast.parent))
    if named:
        number = _call("pg_oid_of", inner.copy(), label)
        return _call("pg_name_of", number, label.copy()) if shown else number
    return _call("pg_name_of", inner.copy(), label) if shown else inner.copy()


def _is_text(cast: exp.Cast) -> bool:
    return cast.to.sql(dialect="postgres").upper().partition("(")[0] in _TEXT_CASTS


_CHANGES = (_functions, _patterns, _arrays, _table_functions, _casts)
