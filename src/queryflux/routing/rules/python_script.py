"""``pythonScript``: a script of the operator's names the group, or None.

What it says of a request is asked before the chain is walked (``RouterChain.ask``), so that walking stays a
plain function: here its answer is only looked up. A script that fails, takes too long, or names a group that
does not exist is an error and not a miss: falling through would send the query where nobody decided.
"""

from collections.abc import Collection
from typing import Any

from queryflux.routing.request import Hit, RouteRequest, Unanswered
from queryflux.scripts.host import ScriptFailed, ScriptHost


class PythonRule:
    """Script ``number`` of ``host``."""

    __slots__ = ("_groups", "_hits", "_host", "_number", "_place")

    def __init__(self, host: ScriptHost, number: int, groups: Collection[str]) -> None:
        self._host = host
        self._number = number
        self._groups = groups
        self._place = host.texts[number].place
        self._hits: dict[str, Hit] = {}

    def match(self, request: RouteRequest) -> Hit | None:
        """Raises Unanswered when the script has not been asked, unless a guess will do."""
        if self not in request.answers:
            if request.guessing:
                return None
            raise Unanswered(self)
        return request.answers[self]

    async def ask(self, request: RouteRequest) -> Hit | None:
        """What the script says. Raises nothing."""
        try:
            said = await self._host.call(self._number, request.text, context_of(request))
        except ScriptFailed as failure:
            self._host.failures.tell(self._number, failure.brief, request.query_id)
            return Hit(None, str(failure), failed=failure.brief)
        if said is None:
            return None
        if not isinstance(said, str):
            return self._wrong(request, f"gave {type(said).__name__}, and not a group or None")
        if not said:
            return self._wrong(request, "gave an empty name; None means that it does not match")
        if said not in self._groups:
            return self._wrong(request, f"gave {said[:100]!r}, and there is no such cluster group")
        if said not in self._hits:
            self._hits[said] = Hit(said, f"{self._place} gave {said}")
        return self._hits[said]

    def _wrong(self, request: RouteRequest, what: str) -> Hit:
        self._host.failures.tell(self._number, f"{self._place} {what}", request.query_id)
        return Hit(None, what, failed=f"{self._place} {what}")


def context_of(request: RouteRequest) -> dict[str, Any]:
    """``ctx``: what a script may know of a request. No credentials: doors keep them out of ``extra``."""
    session, identity = request.session, request.identity
    auth = None
    if identity.authenticated:
        auth = {"user": identity.user, "groups": list(identity.groups), "roles": list(identity.roles)}
    return {
        "protocol": str(request.protocol),
        "user": identity.user or None,
        "database": session.catalog or session.database,
        "extra": dict(session.extra),
        "auth": auth,
    }
