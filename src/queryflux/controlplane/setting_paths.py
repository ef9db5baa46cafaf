"""Settings under paths and names of their own, as other versions of the admin API have them. PUT answers 204.

``/admin/config/security`` is ``auth`` and ``authorization`` in one, in the keys that they are stored under.
"""

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from queryflux.config.rows import identity_of, security_of
from queryflux.controlplane.bodies import Body
from queryflux.controlplane.config_service import ConfigService
from queryflux.controlplane.edits import Outcome
from queryflux.controlplane.endpoints import Call, Endpoint, answer

SECTION = Body("Section", (), any_keys=True)
SETTINGS = {"guardrails": "guardrails", "catalog": "catalogProvider", "access-control": "accessControl"}
"""The setting behind each path."""
_EMPTY: dict[str, Any] = {"catalogProvider": {"type": "null"}}


class SettingPaths:
    """The endpoints over one service."""

    def __init__(self, service: ConfigService, headers: Callable[[Outcome], dict[str, str]]) -> None:
        """``headers`` are what every edit says."""
        self._service = service
        self._headers = headers

    def endpoints(self) -> list[Endpoint]:
        """All of them."""
        security = "/admin/config/security"
        return [
            Endpoint("GET", security, "The settings auth and authorization.", self._get_security),
            Endpoint("PUT", security, "Replace both.", self._put_security, {204: "done"}, body=SECTION),
            *(endpoint for path, name in SETTINGS.items() for endpoint in self._setting(path, name)),
        ]

    def _setting(self, path: str, name: str) -> list[Endpoint]:
        async def get(call: Call) -> Response:
            return answer(await self._service.setting(name) or _EMPTY.get(name, {}))

        async def put(call: Call) -> Response:
            return self._done(await self._service.put_setting(name, call.body))

        path = f"/admin/config/{path}"
        return [
            Endpoint("GET", path, f"The setting {name}.", get),
            Endpoint("PUT", path, f"Replace the setting {name}.", put, {204: "done"}, body=SECTION),
        ]

    async def _get_security(self, call: Call) -> Response:
        sections = {name: await self._service.setting(name) for name in ("auth", "authorization")}
        return answer(security_of(sections))

    async def _put_security(self, call: Call) -> Response:
        return self._done(await self._service.put_sections(identity_of(call.body)))

    def _done(self, outcome: Outcome) -> Response:
        return Response(None, 204, self._headers(outcome))
