"""Functions of the time and the user, which dialects write with and without parentheses."""

from sqlglot import exp

_DUCKDB_CALLS = {
    exp.CurrentTimestamp: "now",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "get_current_time",
    exp.Localtimestamp: "current_localtimestamp",
    exp.Localtime: "current_localtime",
    exp.SessionUser: "session_user",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentUser: "current_user",
}
_MYSQL_NOW = frozenset({"NOW", "SYSDATE"})


def duckdb_calls(root: exp.Expr) -> exp.Expr:
    """DuckDB takes a bare CURRENT_DATE for the column, or the other way round for the alias, of that name."""
    for node in list(root.find_all(*_DUCKDB_CALLS)):
        name = _DUCKDB_CALLS[type(node)]
        zone = node.this if isinstance(node, exp.CurrentDate) else None
        call: exp.Expr = exp.Anonymous(this=name)
        if zone is not None:
            moment = exp.Anonymous(this="timezone", expressions=[zone.copy(), exp.Anonymous(this="now")])
            call = exp.cast(moment, "DATE")
        root = _replaced(root, node, call)
    return root


def mysql_clock(root: exp.Expr) -> exp.Expr:
    """MySQL's NOW() and its synonyms are in the session's time zone and do not know it."""
    for node in list(root.find_all(exp.CurrentTimestamp, exp.Localtime)):
        root = _replaced(root, node, _now(node.this))
    for node in list(root.find_all(exp.CurrentTime)):
        root = _replaced(root, node, exp.Localtime())
    for call in list(root.find_all(exp.Anonymous)):
        if call.name.upper() in _MYSQL_NOW and len(call.expressions) <= 1:
            root = _replaced(root, call, _now(call.expressions[0] if call.expressions else None))
    for kind, cast in ((exp.UtcTimestamp, "TIMESTAMP"), (exp.UtcDate, "DATE"), (exp.UtcTime, "TIME")):
        for node in list(root.find_all(kind)):
            moment = exp.AtTimeZone(this=exp.CurrentTimestamp(), zone=exp.Literal.string("UTC"))
            root = _replaced(root, node, exp.cast(moment, cast))
    return root


def _now(digits: exp.Expr | None) -> exp.Expr:
    return exp.Localtimestamp(this=digits.copy() if digits is not None else exp.Literal.number(0))


def _replaced(root: exp.Expr, node: exp.Expr, new: exp.Expr) -> exp.Expr:
    if node is root:
        return new
    node.replace(new)
    return root
