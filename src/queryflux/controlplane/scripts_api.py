"""Endpoints under /admin/config/scripts: the library of users' Python."""

from collections.abc import Callable
from typing import Any, get_args

from starlette.responses import Response

from queryflux.config.scripts import ScriptKind
from queryflux.controlplane.bodies import Body, Key
from queryflux.controlplane.edits import Outcome
from queryflux.controlplane.endpoints import Call, Endpoint, Param, answer
from queryflux.controlplane.scripts_service import ScriptLibrary

KINDS: tuple[str, ...] = get_args(ScriptKind)
SCRIPT = Body(
    "Script",
    (
        Key("name", "text", "Name; each is there once.", required=True),
        Key("description", "text", "What it does.", nullable=True),
        Key("kind", "text", f"What it is for: {', '.join(KINDS)}.", required=True),
        Key("body", "text", "The script itself.", required=True),
    ),
)


class ScriptsApi:
    """The endpoints over one library."""

    def __init__(self, library: ScriptLibrary, headers: Callable[[Outcome], dict[str, str]]) -> None:
        """``headers`` are what every edit says."""
        self._library = library
        self._headers = headers

    def endpoints(self) -> list[Endpoint]:
        """All of them."""
        path, one = "/admin/config/scripts", "/admin/config/scripts/{id}"
        kind = Param("kind", "text", "Only those of this kind.", values=KINDS)
        record = {200: "the record as it is now"}
        return [
            Endpoint("GET", path, "Every script.", self._list, params=(kind,)),
            Endpoint("POST", path, "Add a script.", self._add, {201: "the new record"}, body=SCRIPT),
            Endpoint("GET", one, "One script.", self._get),
            Endpoint("PUT", one, "Replace a script, or rename it.", self._put, record, body=SCRIPT),
            Endpoint("DELETE", one, "Remove a script that no group lists.", self._delete, {204: "done"}),
        ]

    async def _list(self, call: Call) -> Response:
        return answer(await self._library.scripts(call.params["kind"]))

    async def _get(self, call: Call) -> Response:
        return answer(await self._library.script(call.path("id")))

    async def _add(self, call: Call) -> Response:
        outcome, record = await self._library.add(call.body)
        return self._edited(outcome, record, 201)

    async def _put(self, call: Call) -> Response:
        outcome, record = await self._library.put(call.path("id"), call.body)
        return self._edited(outcome, record, 200)

    def _edited(self, outcome: Outcome, record: Any, status: int) -> Response:
        return answer(record, status, self._headers(outcome))

    async def _delete(self, call: Call) -> Response:
        return Response(None, 204, self._headers(await self._library.delete(call.path("id"))))
