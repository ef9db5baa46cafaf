"""What the running process tells operators: the pipeline's queries and members, and the doors."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from queryflux.app.engines import build_engine
from queryflux.app.history import preview_of
from queryflux.config.clusters import ClusterConfig
from queryflux.config.process import ProcessConfig
from queryflux.controlplane.live import ClusterState, FrontendState, Live, RunningQuery
from queryflux.history.redaction import Redaction
from queryflux.model.errors import QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.model.shared import SharedRow
from queryflux.pipeline.generation import Cluster, GroupPlan
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.pipeline.reconcile import FleetCounts
from queryflux.pipeline.run import Run
from queryflux.runtime.clock import Clock

PREVIEW_LENGTH = 160
PROBE_TIMEOUT_SECS = 10.0
MOST_NAMED = 5

DESCRIPTIONS = {
    "trinoHttp": ("Trino HTTP", "Trino clients and drivers"),
    "postgresWire": ("PostgreSQL wire", "psql and PostgreSQL drivers"),
    "mysqlWire": ("MySQL wire", "mysql and MySQL drivers"),
    "flightSql": ("Arrow Flight SQL", "ADBC, JDBC and ODBC drivers of Arrow Flight SQL"),
}


class LiveProcess(Live):
    """This process."""

    def __init__(
        self,
        pipeline: QueryPipeline,
        process: ProcessConfig,
        configured: Callable[[], Mapping[str, ClusterConfig]],
        ports: Callable[[], Mapping[str, int]],
        cancel_elsewhere: Callable[[str], Awaitable[bool]],
        fleet_counts: Callable[[], FleetCounts | None],
        clock: Clock,
        running_elsewhere: Callable[[], Awaitable[Sequence[RunningQuery]]],
        instance_id: str,
        workers: "OwnWorkers",
    ) -> None:
        """``configured`` gives the clusters of the configuration in use, ``ports`` the ports that are open,
        by door, ``adminApi`` among them; ``cancel_elsewhere`` ends a query of another process, and says
        whether there is one; ``fleet_counts`` gives what was last counted of all processes, if limits are
        shared; ``running_elsewhere`` gives queries that other processes answer for, ``instance_id`` is this
        one's; ``workers`` are those that this process has started."""
        self._workers = workers
        self._pipeline = pipeline
        self._process = process
        self._configured = configured
        self._ports = ports
        self._cancel_elsewhere = cancel_elsewhere
        self._fleet_counts = fleet_counts
        self._clock = clock
        self._running_elsewhere = running_elsewhere
        self._instance_id = instance_id

    def clusters(self) -> Sequence[ClusterState]:
        return [self._state(name, plan, cluster) for name, plan, cluster in members_of(self._pipeline)]

    async def clusters_with_workers(self) -> Sequence[ClusterState]:
        there = await self._workers.members()
        return [together(state, there) for state in self.clusters()]

    def change_cluster(
        self, group: str, cluster: str, enabled: bool | None, limit: int | None
    ) -> ClusterState | None:
        if not change_member(self._pipeline, MemberChange(group, cluster, enabled, limit)):
            return None
        return next(it for it in self.clusters() if (it.group_name, it.cluster_name) == (group, cluster))

    async def change_with_workers(
        self, group: str, cluster: str, enabled: bool | None, limit: int | None
    ) -> ClusterState | None:
        await self._workers.change(MemberChange(group, cluster, enabled, limit))
        state = self.change_cluster(group, cluster, enabled, limit)
        return together(state, await self._workers.members()) if state is not None else None

    def _state(self, name: str, plan: GroupPlan, cluster: Cluster) -> ClusterState:
        member, config = cluster.member, self._configured().get(cluster.member.name)
        fleet = self._fleet_counts()
        return ClusterState(
            group_name=name,
            cluster_name=member.name,
            engine_type=cluster.engine.engine_key,
            endpoint=config.endpoint if config is not None else None,
            running_queries=member.running,
            queued_queries=len(plan.admission.waiters),
            max_running_queries=plan.admission.limit_of(member),
            is_healthy=not member.down,
            unhealthy_reason=member.down or None,
            enabled=member.enabled,
            leases=fleet.leases.get(member.name, 0) if fleet is not None else None,
            engine_running_queries=fleet.engine.get(member.name) if fleet is not None else None,
        )

    def running(self) -> Sequence[RunningQuery]:
        return running_here(self._pipeline, self._clock, self._instance_id)

    async def running_elsewhere(self) -> Sequence[RunningQuery]:
        return await self._running_elsewhere()

    async def cancel(self, query_id: str) -> bool:
        return await cancel_here(self._pipeline, query_id) or await self._cancel_elsewhere(query_id)

    async def probe(self, name: str, config: ClusterConfig) -> str:
        try:
            engine = build_engine(name, config, self._clock)
        except QueryFluxError as error:
            return error.message
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECS):
                await engine.probe()
        except QueryFluxError as error:
            return error.message
        except TimeoutError:
            return f"no answer within {PROBE_TIMEOUT_SECS:g} s"
        finally:
            await engine.close()
        return ""

    def frontends(self) -> Sequence[FrontendState]:
        doors, ports = self._process.frontends.named(), self._ports()
        return [
            FrontendState(
                id=name,
                label=label,
                short_description=text,
                enabled=name in ports,
                port=ports.get(name),
                tls=(door := doors.get(name)) is not None and door.tls is not None,
            )
            for name, (label, text) in DESCRIPTIONS.items()
        ]

    @property
    def external_address(self) -> str | None:
        return self._process.external_address

    @property
    def admin_port(self) -> int:
        return self._ports()["adminApi"]


class MemberState(Struct, frozen=True, kw_only=True):
    """A cluster in one of its groups, as one process has it."""

    group: str
    cluster: str
    running: int
    queued: int
    down: str
    enabled: bool


class MemberChange(Struct, frozen=True):
    """Turn it on or off, or change its limit; None leaves as it is."""

    group: str
    cluster: str
    enabled: bool | None
    limit: int | None


class OwnWorkers:
    """The workers that a process has started: none."""

    async def members(self) -> Sequence[MemberState]:
        """The clusters as each of them has them."""
        return ()

    async def change(self, change: MemberChange) -> None:
        """Change a cluster in all of them. Raises Unavailable when one does not answer."""


def members_of(pipeline: QueryPipeline) -> Iterator[tuple[str, GroupPlan, Cluster]]:
    """Each cluster in each of its groups."""
    generation = pipeline.active
    if generation is not None:
        for name, plan in generation.groups.items():
            for member in plan.admission.members:
                yield name, plan, generation.clusters[member.name]


def change_member(pipeline: QueryPipeline, change: MemberChange) -> bool:
    """Change a cluster of a group; False when there is none such."""
    for name, _, found in members_of(pipeline):
        if (name, found.member.name) == (change.group, change.cluster):
            if change.enabled is not None:
                found.member.enabled = change.enabled
            if change.limit is not None:
                found.member.limit = change.limit
            pipeline.admission.changed(found.member)
            return True
    return False


def member_states(pipeline: QueryPipeline) -> list[MemberState]:
    """The clusters of a pipeline."""
    return [
        MemberState(
            group=name,
            cluster=cluster.member.name,
            running=cluster.member.running,
            queued=len(plan.admission.waiters),
            down=cluster.member.down,
            enabled=cluster.member.enabled,
        )
        for name, plan, cluster in members_of(pipeline)
    ]


def unreachable(pipeline: QueryPipeline) -> str:
    """Which clusters do not answer this process, without their addresses; empty: all do."""
    down = sorted({cluster.member.name for _, _, cluster in members_of(pipeline) if cluster.member.down})
    if not down:
        return ""
    names = ", ".join(down[:MOST_NAMED]) + (
        f" and {len(down) - MOST_NAMED} more" if down[MOST_NAMED:] else ""
    )
    return f"clusters that do not answer here (its log has the reason): {names}"


def together(state: ClusterState, there: Sequence[MemberState]) -> ClusterState:
    """A cluster of this process with what its workers say of it."""
    told = [it for it in there if (it.group, it.cluster) == (state.group_name, state.cluster_name)]
    down = state.unhealthy_reason or next((it.down for it in told if it.down), None)
    return replace(
        state,
        running_queries=state.running_queries + sum(it.running for it in told),
        queued_queries=state.queued_queries + sum(it.queued for it in told),
        is_healthy=down is None,
        unhealthy_reason=down,
        enabled=state.enabled and all(it.enabled for it in told),
    )


def running_here(pipeline: QueryPipeline, clock: Clock, instance_id: str) -> list[RunningQuery]:
    """The queries that run or wait in a pipeline, which is that of an instance, the oldest first."""
    policy = pipeline.active.redaction if pipeline.active is not None else Redaction.METADATA
    return [
        RunningQuery(
            id=run.id,
            backend_query_id=backend_id(run),
            submitted_by=run.talk.identity.user,
            group=run.group,
            cluster=run.cluster or None,
            sql_preview=preview_of(run.statement.text, run.statement.dialect, PREVIEW_LENGTH, policy),
            state="executing" if run.admitted_at is not None and not run.waiting else "queued",
            frontend_protocol=run.session.protocol.label,
            created_at=run.created_at,
            elapsed_secs=round(clock.now() - run.created_at, 3),
            instance_id=instance_id,
        )
        for run in list(pipeline.running.values())
    ]


def shared_by(row: SharedRow, backend: str, pipeline: QueryPipeline, clock: Clock) -> RunningQuery:
    """A query that another process has told the database of; ``backend`` is its engine's id."""
    policy = pipeline.active.redaction if pipeline.active is not None else Redaction.METADATA
    query = row.query
    return RunningQuery(
        id=query.id,
        backend_query_id=backend if backend not in ("", query.id) else None,
        submitted_by=query.user,
        group=query.group,
        cluster=row.cluster or None,
        sql_preview=preview_of(query.text, query.dialect, PREVIEW_LENGTH, policy),
        state="executing" if row.executing else "queued",
        frontend_protocol=ClientProtocol(query.protocol).label,
        created_at=query.created_at,
        elapsed_secs=round(max(0.0, clock.now() - query.created_at), 3),
        instance_id=row.owner,
    )


async def cancel_here(pipeline: QueryPipeline, query_id: str) -> bool:
    """End a query of a pipeline, by our id or its engine's; False when it runs none such."""
    run = pipeline.running.get(query_id)
    if run is None:
        run = next((it for it in pipeline.running.values() if backend_id(it) == query_id), None)
    if run is not None:
        await run.cancel()
    return run is not None


def backend_id(run: Run) -> str | None:
    """The engine's own id of a query, once the engine has said it."""
    said = run.connection.running_id if run.connection is not None else None
    return said or (run.answer.stats.backend_query_id if run.answer is not None else None)
