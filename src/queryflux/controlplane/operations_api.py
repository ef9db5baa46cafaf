"""Endpoints for what runs: live clusters, queries, figures, doors, and the operator's own log-in."""

from urllib.parse import unquote

from msgspec import to_builtins
from starlette.responses import Response

from queryflux.config.problems import show
from queryflux.controlplane.app import caller_of
from queryflux.controlplane.bodies import Body, Key
from queryflux.controlplane.endpoints import Call, Endpoint, Param, answer, note_header
from queryflux.controlplane.errors import NotThere
from queryflux.controlplane.live import Live
from queryflux.controlplane.login import Login
from queryflux.controlplane.queries_service import MAX_HOURS, MAX_LIMIT, QueriesService
from queryflux.history.port import HistoryFilter, Usage
from queryflux.model.endings import QueryStatus

LIVE_CLUSTER = Body(
    "LiveCluster",
    (
        Key("enabled", "flag", "Whether queries may go there; left out: as it is.", nullable=True),
        Key("max_running_queries", "integer", "Queries at a time; left out: as it is.", nullable=True),
    ),
)
CHANGE_PASSWORD = Body(
    "ChangePassword",
    (
        Key("current_password", "secret", "The password as it is.", required=True),
        Key("new_password", "secret", "At least 8 characters, at most 72 bytes.", required=True),
    ),
)
RUNNING = "Queries that run or wait: in this process, and what it knows of those of others."
HOURS = Param(
    "hours", "integer", f"How far back; 0 counts as 1, more than {MAX_HOURS} as {MAX_HOURS}.", default=24
)
PAGE = (
    Param("limit", "integer", f"At most so many; more than {MAX_LIMIT} counts as {MAX_LIMIT}.", default=50),
    Param("offset", "integer", "Skip so many.", default=0),
)
FILTERS = (
    Param("search", "text", "A piece of the first 500 characters of the SQL, case aside."),
    Param("status", "text", "How it ended.", values=tuple(status.value for status in QueryStatus)),
    Param("cluster_group", "text", "Name of the group."),
    Param("engine", "text", "Engine, as GET /admin/engines spells it."),
    Param("user", "text", "Name of the user."),
    Param("worker", "text", "Name of the worker that ran it, the same after a restart."),
)


class OperationsApi:
    """The endpoints over what runs in this process and over history."""

    def __init__(self, queries: QueriesService, live: Live, login: Login, *, durable: bool) -> None:
        """``durable``: a changed password outlives this process."""
        self._queries = queries
        self._live = live
        self._login = login
        self._durable = durable

    def endpoints(self) -> list[Endpoint]:
        """All of them."""
        return [*self._live_clusters(), *self._for_queries(), *self._figures(), *self._own()]

    def _live_clusters(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET", "/admin/clusters", "Each cluster in each of its groups, as it is now.", self._clusters
            ),
            Endpoint(
                "PATCH",
                "/admin/clusters/{group:path}/{cluster:path}",
                "Turn a cluster on or off, or change its limit: in this process only, and not stored.",
                self._change_cluster,
                {200: "the state as it is now"},
                body=LIVE_CLUSTER,
            ),
        ]

    def _for_queries(self) -> list[Endpoint]:
        one = "/admin/queries/{id}"
        return [
            Endpoint(
                "GET",
                "/admin/queries",
                "Queries that have ended, newest first.",
                self._ended,
                params=FILTERS + PAGE,
            ),
            Endpoint("GET", "/admin/queries/running", RUNNING, self._running),
            Endpoint("GET", one, "All that history knows of one query.", self._one),
            Endpoint(
                "DELETE",
                one,
                "Cancel a query, by our id or its engine's.",
                self._cancel,
                {204: "it has ended"},
            ),
        ]

    def _figures(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/admin/stats", "The last hour at a glance.", self._stats),
            Endpoint("GET", "/admin/engines", "Engines that queries went to.", self._engines),
            Endpoint("GET", "/admin/engine-stats", "Queries by engine.", self._by_engine, params=(HOURS,)),
            Endpoint("GET", "/admin/group-stats", "Queries by group.", self._by_group, params=(HOURS,)),
            Endpoint("GET", "/admin/frontends", "The doors, open or not.", self._frontends),
        ]

    def _own(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/admin/auth/status", "Which password counts.", self._status),
            Endpoint(
                "POST",
                "/admin/auth/change-password",
                "Change the operator's password.",
                self._change_password,
                body=CHANGE_PASSWORD,
            ),
        ]

    # What runs.

    async def _clusters(self, call: Call) -> Response:
        return answer([to_builtins(state) for state in await self._live.clusters_with_workers()])

    async def _change_cluster(self, call: Call) -> Response:
        group, cluster = _group_and_cluster(call)
        enabled, limit = call.body.get("enabled"), call.body.get("max_running_queries")
        state = await self._live.change_with_workers(group, cluster, enabled, limit)
        if state is None:
            raise NotThere(f"group {show(group)} has no cluster {show(cluster)}", hint="GET /admin/clusters")
        return answer(to_builtins(state))

    async def _ended(self, call: Call) -> Response:
        wanted = {param.name: call.params[param.name] for param in FILTERS}
        limit, offset = call.params["limit"], call.params["offset"]
        return answer(await self._queries.ended(HistoryFilter(**wanted), limit, offset))

    async def _running(self, call: Call) -> Response:
        queries, why = await self._queries.running()
        return answer(queries, headers=note_header(why))

    async def _one(self, call: Call) -> Response:
        return answer(await self._queries.one(call.path("id")))

    async def _cancel(self, call: Call) -> Response:
        await self._queries.cancel(call.path("id"))
        return Response(None, 204)

    # Figures.

    async def _stats(self, call: Call) -> Response:
        hour = await self._queries.last_hour()
        return answer(
            {
                "queries_last_hour": hour.queries,
                "error_rate_last_hour": hour.error_rate,
                "avg_duration_ms_last_hour": hour.avg_duration_ms,
                "translation_rate_last_hour": hour.translation_rate,
            }
        )

    async def _engines(self, call: Call) -> Response:
        return answer(await self._queries.engines())

    async def _by_engine(self, call: Call) -> Response:
        usage = await self._queries.engine_usage(call.params["hours"])
        return answer([{"engine_type": it.name, **figures(it)} for it in usage])

    async def _by_group(self, call: Call) -> Response:
        usage = await self._queries.group_usage(call.params["hours"])
        return answer([{"cluster_group": it.name, **figures(it)} for it in usage])

    async def _frontends(self, call: Call) -> Response:
        return answer(
            {
                "external_address": self._live.external_address,
                "admin_api_port": self._live.admin_port,
                "protocols": [to_builtins(door) for door in self._live.frontends()],
            }
        )

    # The operator.

    async def _status(self, call: Call) -> Response:
        return answer({**await self._login.status(), "durable_store": self._durable})

    async def _change_password(self, call: Call) -> Response:
        body = call.body
        await self._login.change(caller_of(call.request), body["current_password"], body["new_password"])
        return answer({"ok": True})


def figures(usage: Usage) -> dict[str, float]:
    """The numbers of one engine or group."""
    numbers: dict[str, float] = to_builtins(usage)
    return {key: value for key, value in numbers.items() if key != "name"}


def _group_and_cluster(call: Call) -> tuple[str, str]:
    """Two names that may have slashes: they are told apart before they are decoded. Raises NotThere."""
    parts = call.request.scope["raw_path"].decode("ascii", "replace").split("/")[3:]
    if len(parts) != 2:
        raise NotThere("a path of a group and a cluster has two names", hint="write %2F for / in a name")
    return unquote(parts[0]), unquote(parts[1])
