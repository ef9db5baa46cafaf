"""``userGroup``: a group for each verified user name."""

from queryflux.config.routers import UserGroupRouter
from queryflux.routing.request import Hit, RouteRequest


class UserGroupRule:
    """Looks at the verified identity, never at what the session claims."""

    __slots__ = ("_hits",)

    def __init__(self, config: UserGroupRouter) -> None:
        self._hits = {user: Hit(group, user) for user, group in config.user_to_group.items()}

    def match(self, request: RouteRequest) -> Hit | None:
        return self._hits.get(request.identity.user)
