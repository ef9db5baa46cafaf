"""``compound``: several conditions, all or any of which must hold."""

from collections.abc import Callable

from queryflux.config.routers import (
    ClientTagCondition,
    CompoundRouter,
    Condition,
    HeaderCondition,
    ProtocolCondition,
    UserCondition,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.routing.regex import compile_regex
from queryflux.routing.request import Hit, RouteRequest

Test = Callable[[RouteRequest], bool]
CLIENT_TAGS = "x-trino-client-tags"


class CompoundRule:
    """Conditions are tried in order and no further than needed."""

    __slots__ = ("_all", "_hits", "_tests")

    def __init__(self, config: CompoundRouter) -> None:
        """Raises ValueError for a pattern that RE2 refuses, or when there is no condition."""
        if not config.conditions:
            raise ValueError("a compound rule has no conditions")
        self._tests = [_test(condition) for condition in config.conditions]
        self._all = config.combine == "all"
        together = Hit(config.target_group, "all conditions")
        one = [Hit(config.target_group, f"conditions[{number}]") for number in range(len(self._tests))]
        self._hits = [together] if self._all else one

    def match(self, request: RouteRequest) -> Hit | None:
        if self._all:
            return self._hits[0] if all(test(request) for test in self._tests) else None
        for test, hit in zip(self._tests, self._hits, strict=True):
            if test(request):
                return hit
        return None


def _test(condition: Condition) -> Test:
    if isinstance(condition, ProtocolCondition):
        protocol = ClientProtocol(condition.protocol)
        return lambda request: request.protocol is protocol
    if isinstance(condition, HeaderCondition):
        name, value = condition.header_name.lower(), condition.header_value
        return lambda request: request.header(name) == value
    if isinstance(condition, UserCondition):
        username = condition.username
        return lambda request: request.identity.user == username
    if isinstance(condition, ClientTagCondition):
        tag = condition.tag
        return lambda request: tag in client_tags(request)
    search = compile_regex(condition.regex).search
    return lambda request: search(request.utf8) is not None


def client_tags(request: RouteRequest) -> list[str]:
    """The tags of X-Trino-Client-Tags, a list parted by commas."""
    value = request.header(CLIENT_TAGS)
    return [tag.strip() for tag in value.split(",")] if value else []
