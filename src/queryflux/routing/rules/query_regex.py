"""``queryRegex``: patterns over the text; the first that is found routes the query or denies it."""

from queryflux.config.routers import QueryRegexRouter, QueryRegexRule
from queryflux.routing.regex import compile_regex
from queryflux.routing.request import Hit, RouteRequest

DENIED = "this query is not allowed here"


class QueryRegexRouting:
    """The patterns of one router, in order."""

    __slots__ = ("_rules",)

    def __init__(self, config: QueryRegexRouter) -> None:
        """Raises ValueError for a pattern that RE2 refuses and for a route without a target."""
        self._rules = [
            (compile_regex(rule.regex).search, _hit(n, rule)) for n, rule in enumerate(config.rules)
        ]

    def match(self, request: RouteRequest) -> Hit | None:
        text = request.utf8
        for search, hit in self._rules:
            if search(text):
                return hit
        return None


def _hit(number: int, rule: QueryRegexRule) -> Hit:
    detail = f"rules[{number}]"
    if rule.action == "deny":
        return Hit(None, detail, denied=rule.error or DENIED)
    if rule.target_group is None:
        raise ValueError(f"{detail} routes and has no targetGroup")
    return Hit(rule.target_group, detail)
