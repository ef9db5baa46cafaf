"""Endpoints under /admin/config: the configuration, whole and in parts."""

from typing import Any
from urllib.parse import quote

from msgspec import UNSET
from starlette.responses import Response

from queryflux.config.document import MAX_BYTES
from queryflux.config.problems import Problem
from queryflux.controlplane.bodies import Body, Key
from queryflux.controlplane.changes import change_document
from queryflux.controlplane.config_service import ConfigService
from queryflux.controlplane.edits import Outcome
from queryflux.controlplane.endpoints import Call, Endpoint, Param, answer, note_header
from queryflux.controlplane.errors import Refused
from queryflux.controlplane.live import Live
from queryflux.controlplane.records import CLUSTER, GROUP, ROUTING, cluster_record, group_record

NOT_DURABLE = (
    "kept in memory: this edit is gone when the process ends; write it into the file too, or set "
    "queryflux.persistence"
)
NEW_NAME = Key("newName", "text", "Rename it to this.")
CLUSTER_PATCH = Body("ClusterPatch", (*CLUSTER.keys, NEW_NAME))
GROUP_PATCH = Body("GroupPatch", (*GROUP.keys, NEW_NAME))
SETTING = Body("Setting", (), any_keys=True)
WHOLE = Body(
    "Configuration",
    (
        Key(
            "document",
            "object",
            "Sections, as in a file; one that is not there stays as it is.",
            required=True,
        ),
        Key(
            "expectedSequence", "integer", "Refuse when the configuration is no more at this.", nullable=True
        ),
    ),
)
TEST = Body(
    "ClusterTest",
    (
        Key("engineKey", "text", "Which engine it is."),
        Key("engine_key", "text", "An older spelling of engineKey."),
        Key("config", "object", "What the engine needs.", required=True),
        Key("name", "text", "A stored cluster whose secrets the markers in config stand for."),
    ),
)
_RECORD = {200: "the record as it is now"}
_NOTHING = {204: "done"}


class ConfigApi:
    """The endpoints over one service."""

    def __init__(self, service: ConfigService, live: Live) -> None:
        self._service = service
        self._live = live

    def endpoints(self) -> list[Endpoint]:
        """All of them."""
        return [*self._whole(), *self._clusters(), *self._groups(), *self._rest()]

    def _whole(self) -> list[Endpoint]:
        dry_run = Param("dryRun", "flag", "Say what would change, and change nothing.", default=False)
        return [
            Endpoint("GET", "/admin/config", "The whole configuration.", self._get_whole),
            Endpoint(
                "PUT",
                "/admin/config",
                "Replace sections of the configuration, all or nothing.",
                self._put_whole,
                answers={200: "what changed"},
                params=(dry_run,),
                body=WHOLE,
                max_body=MAX_BYTES,
            ),
        ]

    def _clusters(self) -> list[Endpoint]:
        path = "/admin/config/clusters/{name:path}"
        test = "/admin/config/clusters/test"
        return [
            Endpoint("GET", "/admin/config/clusters", "Every cluster.", self._get_clusters),
            Endpoint("POST", test, "Ask an engine a trivial question.", self._test, body=TEST),
            Endpoint("GET", path, "One cluster.", self._get_cluster),
            Endpoint("PUT", path, "Add or replace a cluster.", self._put_cluster, _RECORD, body=CLUSTER),
            Endpoint(
                "PATCH",
                path,
                "Change some keys of a cluster, or its name.",
                self._patch_cluster,
                _RECORD,
                body=CLUSTER_PATCH,
                partial=True,
            ),
            Endpoint(
                "DELETE", path, "Remove a cluster, also from its groups.", self._delete_cluster, _NOTHING
            ),
        ]

    def _groups(self) -> list[Endpoint]:
        path = "/admin/config/groups/{name:path}"
        return [
            Endpoint("GET", "/admin/config/groups", "Every group.", self._get_groups),
            Endpoint("GET", path, "One group.", self._get_group),
            Endpoint("PUT", path, "Add or replace a group.", self._put_group, _RECORD, body=GROUP),
            Endpoint(
                "PATCH",
                path,
                "Change some keys of a group, or its name, also where queries are routed to it.",
                self._patch_group,
                _RECORD,
                body=GROUP_PATCH,
                partial=True,
            ),
            Endpoint("DELETE", path, "Remove a group that nothing leads to.", self._delete_group, _NOTHING),
        ]

    def _rest(self) -> list[Endpoint]:
        routing, setting = "/admin/config/routing", "/admin/config/settings/{name}"
        return [
            Endpoint("GET", routing, "Rules and fallback.", self._get_routing),
            Endpoint(
                "PUT", routing, "Replace rules and fallback.", self._put_routing, _NOTHING, body=ROUTING
            ),
            Endpoint("GET", "/admin/config/settings", "Every setting.", self._get_settings),
            Endpoint("GET", setting, "One setting.", self._get_setting),
            Endpoint("PUT", setting, "Replace a setting.", self._put_setting, body=SETTING),
            Endpoint(
                "PATCH", setting, "Merge into a setting.", self._patch_setting, body=SETTING, partial=True
            ),
        ]

    # The whole.

    async def _get_whole(self, call: Call) -> Response:
        current = await self._service.current()
        document = {
            "sequence": current.stored.sequence,
            "epoch": current.stored.epoch,
            "durable": self._service.durable,
            "document": current.shown,
            "notServed": [{"path": it.path, "reason": it.reason} for it in current.left_out],
        }
        return answer(document)

    async def _put_whole(self, call: Call) -> Response:
        dry_run = call.params["dryRun"]
        outcome = await self._service.put_sections(
            call.body["document"], expected=call.body.get("expectedSequence"), dry_run=dry_run
        )
        document = {
            "sequence": outcome.sequence,
            "durable": self._service.durable,
            "dryRun": dry_run,
            "changes": [change_document(change) for change in outcome.changes],
            "warnings": [
                {"path": it.path, "message": it.message, "hint": it.hint} for it in outcome.warnings
            ],
            "notes": [] if dry_run or not outcome.changes else self._notes(outcome),
        }
        return answer(document, headers=self.headers(outcome))

    def _notes(self, outcome: Outcome) -> list[str]:
        notes = [] if self._service.durable else [NOT_DURABLE]
        return [*notes, outcome.note] if outcome.note else notes

    def headers(self, outcome: Outcome) -> dict[str, str]:
        """What every edit says: where the configuration is now, and what is to know."""
        headers = {
            "X-QueryFlux-Config-Sequence": str(outcome.sequence),
            "X-QueryFlux-Config-Durable": str(self._service.durable).lower(),
        }
        if outcome.changes and (notes := self._notes(outcome)):
            headers["X-QueryFlux-Note"] = quote("; ".join(notes), safe=" ;:,./()'=-")
        return headers

    def _edited(self, outcome: Outcome, record: Any = UNSET) -> Response:
        headers = self.headers(outcome)
        return Response(None, 204, headers) if record is UNSET else answer(record, headers=headers)

    # Clusters.

    async def _get_clusters(self, call: Call) -> Response:
        return answer(await self._service.clusters())

    async def _get_cluster(self, call: Call) -> Response:
        return answer(await self._service.cluster(call.path("name")))

    async def _put_cluster(self, call: Call) -> Response:
        name = call.path("name")
        outcome = await self._service.put_cluster(name, call.body)
        return self._edited(outcome, cluster_record(name, outcome.shown["clusters"][name]))

    async def _patch_cluster(self, call: Call) -> Response:
        name, patch, new_name = _patch(call)
        outcome = await self._service.patch_cluster(name, patch, new_name)
        now = new_name or name
        return self._edited(outcome, cluster_record(now, outcome.shown["clusters"][now]))

    async def _delete_cluster(self, call: Call) -> Response:
        return self._edited(await self._service.delete_cluster(call.path("name")))

    async def _test(self, call: Call) -> Response:
        engine = call.body.get("engineKey") or call.body.get("engine_key")
        if engine is None:
            problem = Problem(0, 0, "engineKey", "is required")
            raise Refused("the body is not what this path takes", problems=[problem])
        record = {"engineKey": engine, "config": call.body["config"]}
        name, config = await self._service.candidate(call.body.get("name"), record)
        reason = await self._live.probe(name, config)
        return answer({"ok": not reason, "message": reason or "the engine answers"})

    # Groups.

    async def _get_groups(self, call: Call) -> Response:
        return answer(await self._service.groups())

    async def _get_group(self, call: Call) -> Response:
        return answer(await self._service.group(call.path("name")))

    async def _put_group(self, call: Call) -> Response:
        name = call.path("name")
        outcome = await self._service.put_group(name, call.body)
        group = outcome.shown["clusterGroups"][name]
        return self._edited(outcome, group_record(name, group, outcome.ids))

    async def _patch_group(self, call: Call) -> Response:
        name, patch, new_name = _patch(call)
        outcome = await self._service.patch_group(name, patch, new_name)
        now = new_name or name
        group = outcome.shown["clusterGroups"][now]
        return self._edited(outcome, group_record(now, group, outcome.ids))

    async def _delete_group(self, call: Call) -> Response:
        return self._edited(await self._service.delete_group(call.path("name")))

    # Routing and settings.

    async def _get_routing(self, call: Call) -> Response:
        return answer(await self._service.routing())

    async def _put_routing(self, call: Call) -> Response:
        outcome = await self._service.put_routing(call.body)
        response = self._edited(outcome)
        now = outcome.shown["routingFallback"]
        if (named := call.body.get("routingFallback", now)) != now:
            note = f"routingFallback: the group is {now} by its id, and not {named}"
            for key, text in note_header(note).items():
                response.headers[key] = "; ".join(filter(None, (response.headers.get(key), text)))
        return response

    async def _get_settings(self, call: Call) -> Response:
        return answer(await self._service.settings())

    async def _get_setting(self, call: Call) -> Response:
        return answer(await self._service.setting(call.path("name")))

    async def _put_setting(self, call: Call) -> Response:
        name = call.path("name")
        outcome = await self._service.put_setting(name, call.body)
        return self._edited(outcome, outcome.shown.get(name, {}))

    async def _patch_setting(self, call: Call) -> Response:
        name = call.path("name")
        outcome = await self._service.patch_setting(name, call.body)
        return self._edited(outcome, outcome.shown.get(name, {}))


def _patch(call: Call) -> tuple[str, dict[str, Any], str | None]:
    """The name in the path, the patch, and the new name. Raises Refused."""
    patch = dict(call.body)
    new_name = patch.pop("newName", None)
    if new_name is not None and not new_name.strip():
        problem = Problem(0, 0, "newName", "a name must not be empty")
        raise Refused("the body is not what this path takes", problems=[problem])
    return call.path("name"), patch, new_name
