"""A Snapshot becomes a Generation: engines, members, groups, rules."""

from queryflux.admission.decide import Strategy
from queryflux.admission.slots import Group, Member
from queryflux.app.engines import build_engine
from queryflux.auth.groups import may_use_group
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.snapshot import Snapshot, revision_of
from queryflux.pipeline.generation import Cluster, Generation, GroupPlan
from queryflux.routing.chain import GroupAccess, compile_routing
from queryflux.runtime.clock import Clock
from queryflux.sql.translate import TranslationMode, Translator


def compile_generation(
    snapshot: Snapshot, clock: Clock, *, untagged_metrics: tuple[str, ...] = ()
) -> Generation:
    """Build everything a snapshot names. Touches no network. Raises ConfigError."""
    clusters = {
        name: Cluster(
            build_engine(name, config, clock),
            Member(name, limit=config.max_running_queries, enabled=config.enabled),
        )
        for name, config in snapshot.clusters.items()
    }
    groups = {name: _plan(name, group, clusters) for name, group in snapshot.cluster_groups.items()}
    access = {
        name: GroupAccess(
            allow_groups=frozenset(group.authorization.allow_groups),
            allow_users=frozenset(group.authorization.allow_users),
            enabled=group.enabled,
        )
        for name, group in snapshot.cluster_groups.items()
    }
    return Generation(
        revision=revision_of(snapshot),
        chain=compile_routing(snapshot.routers, snapshot.routing_fallback, access, may_use=may_use_group),
        groups=groups,
        clusters=clusters,
        translator=_translator(snapshot),
        untagged_metrics=frozenset(untagged_metrics),
    )


def _translator(snapshot: Snapshot) -> Translator:
    strict = snapshot.translation.strict
    return Translator(TranslationMode.STRICT if strict else TranslationMode.BEST_EFFORT)


def _plan(name: str, config: ClusterGroupConfig, clusters: dict[str, Cluster]) -> GroupPlan:
    members = [clusters[member].member for member in config.members]
    group = Group(
        name,
        members,
        limit=config.max_running_queries,
        max_queued=config.max_queued_queries,
        wait_secs=config.capacity_wait_secs,
        strategy=Strategy(str(config.strategy.__struct_config__.tag)),
    )
    for member in members:
        member.groups.append(group)
    return GroupPlan(
        group,
        query_timeout_secs=config.query_timeout_secs or None,
        idle_in_transaction_secs=config.idle_in_transaction_timeout_secs,
        default_tags=config.default_tags,
    )
