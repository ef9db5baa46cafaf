"""The operator port put together: the admin API over this process's store, history and pipeline."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette

from queryflux import __version__
from queryflux.admission.leases import Leases
from queryflux.app.live import LiveProcess, OwnWorkers
from queryflux.auth.hashes import check_password
from queryflux.config.clusters import ClusterConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore
from queryflux.controlplane.config_service import ConfigService, Rules
from queryflux.controlplane.following_api import following_endpoint
from queryflux.controlplane.live import RunningQuery
from queryflux.controlplane.operator_port import operator_port
from queryflux.controlplane.public_api import Render, public_endpoints
from queryflux.controlplane.publisher import Publishing
from queryflux.controlplane.registry import WorkerRegistry
from queryflux.controlplane.reload import Reloader
from queryflux.controlplane.status_api import About, Status
from queryflux.history.port import HistoryStore
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.pipeline.reconcile import FleetCounts
from queryflux.routing.regex import check_regex
from queryflux.runtime.clock import Clock
from queryflux.scripts.check import ScriptCheck


def build_operator_port(
    config: RootConfig,
    file: Snapshot,
    *,
    instance_id: str,
    pipeline: QueryPipeline,
    store: ConfigStore,
    durable: bool,
    history: HistoryStore,
    configured: Callable[[], Mapping[str, ClusterConfig]],
    ports: Callable[[], Mapping[str, int]],
    cancel_elsewhere: Callable[[str], Awaitable[bool]],
    running_elsewhere: Callable[[], Awaitable[Sequence[RunningQuery]]],
    own_workers: OwnWorkers,
    fleet_counts: Callable[[], FleetCounts | None],
    leases: Leases | None,
    reloader: Reloader,
    registry: WorkerRegistry,
    publishing: Callable[[], Publishing | None],
    check_ready: Callable[[], None],
    metrics: Render,
    clock: Clock,
) -> Starlette:
    """What the operator port serves. ``file`` is the file's snapshot, ``configured`` the clusters in use;
    ``ports`` are the open ones by door, ``adminApi`` among them; ``cancel_elsewhere`` ends a query of another
    process, ``running_elsewhere`` gives what is known of those of others, ``own_workers`` are those that
    this process has started, ``fleet_counts`` gives what was last counted of all; ``leases`` are this
    process's, if limits are shared; ``publishing`` gives how the snapshot for workers is, if there are any.
    Raises ConfigError when the operator's password cannot be used."""
    process = config.queryflux
    rules = Rules(process, check_regex, check_password, ScriptCheck())
    live = LiveProcess(
        pipeline,
        process,
        configured,
        ports,
        cancel_elsewhere,
        fleet_counts,
        clock,
        running_elsewhere,
        instance_id,
        own_workers,
    )

    def revision() -> str | None:
        return pipeline.active.revision if pipeline.active is not None else None

    following = following_endpoint(lambda: reloader.state, revision)
    status = Status(
        about_process(process, instance_id),
        store=store,
        following=lambda: reloader.state,
        revision=revision,
        check_ready=check_ready,
        live=live,
        leases=leases,
        publishing=publishing,
        clock=clock,
    )
    endpoints = [following, status.endpoint(), *registry.admin_endpoints()]
    return operator_port(
        [*public_endpoints(check_ready, metrics), *endpoints],
        config=process.admin_api,
        service=ConfigService(store, file, rules, durable=durable, apply=reloader.apply),
        store=store,
        history=history,
        live=live,
        clock=clock,
        version=__version__,
    )


def about_process(process: ProcessConfig, instance_id: str) -> About:
    """What a process is, by its file."""
    store = str(type(process.persistence).__struct_config__.tag)
    return About(process.role, __version__, instance_id, store, process.serves_workers)
