"""``tags``: the client's tags; every tag of a rule must hold, the first rule that holds wins."""

from queryflux.config.routers import TagsRouter
from queryflux.routing.request import Hit, RouteRequest


class TagsRule:
    """Reads the session's own tags: a group's ``defaultTags`` are not known before the group is."""

    __slots__ = ("_rules",)

    def __init__(self, config: TagsRouter) -> None:
        self._rules = [
            (tuple(rule.tags.items()), Hit(rule.target_group, f"rules[{number}]"))
            for number, rule in enumerate(config.rules)
        ]

    def match(self, request: RouteRequest) -> Hit | None:
        tags = request.session.tags
        for wanted, hit in self._rules:
            if all(key in tags and (value is None or tags[key] == value) for key, value in wanted):
                return hit
        return None
