"""``protocolBased``: a group for each client protocol."""

from queryflux.config.routers import ProtocolBasedRouter
from queryflux.model.protocol import ClientProtocol
from queryflux.routing.request import Hit, RouteRequest


class ProtocolBasedRule:
    """A protocol without a group does not match."""

    __slots__ = ("_hits",)

    def __init__(self, config: ProtocolBasedRouter) -> None:
        self._hits = {ClientProtocol(key): Hit(group, key) for key, group in config.groups().items()}

    def match(self, request: RouteRequest) -> Hit | None:
        return self._hits.get(request.protocol)
