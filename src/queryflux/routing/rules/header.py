"""``header``: the exact value of one header, whose name is written in any case."""

from queryflux.config.routers import HeaderRouter
from queryflux.routing.request import Hit, RouteRequest


class HeaderRule:
    """Only clients whose protocol has headers can match."""

    __slots__ = ("_hits", "_name")

    def __init__(self, config: HeaderRouter) -> None:
        self._name = config.header_name.lower()
        self._hits = {
            value: Hit(group, f"{config.header_name}: {value}")
            for value, group in config.header_value_to_group.items()
        }

    def match(self, request: RouteRequest) -> Hit | None:
        value = request.header(self._name)
        return None if value is None else self._hits.get(value)
