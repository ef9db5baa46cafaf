"""A Snapshot becomes a Generation and what doors authenticate with: engines, members, groups, rules, users.

What did not change since the configuration in use is taken from there: engines with their connections, the
translator with what it has translated, the authenticator with its sessions.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from queryflux.admission.decide import Strategy
from queryflux.admission.slots import Group, Member
from queryflux.app.engines import build_engine
from queryflux.auth.build import build_authenticator
from queryflux.auth.groups import may_use_group
from queryflux.auth.port import Authenticator
from queryflux.config.clusters import ClusterConfig
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.problems import render_path
from queryflux.config.scripts import scripts_of
from queryflux.config.snapshot import Snapshot, revision_of
from queryflux.config.variants import expanded
from queryflux.controlplane.reload import PrepareFailed
from queryflux.engines.port import Engine
from queryflux.history.redaction import Redaction
from queryflux.model.errors import ConfigError
from queryflux.pipeline.fixups import CACHE_BYTES, FixUps
from queryflux.pipeline.generation import Cluster, Generation, GroupPlan
from queryflux.routing.chain import GroupAccess, compile_routing
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.threads import in_thread
from queryflux.scripts.host import ScriptHost
from queryflux.scripts.limits import Text
from queryflux.sql.textcache import TextCache
from queryflux.sql.translate import TranslationMode, Translator

THREAD = "configuration"
MOST_AT_ONCE_SECS = 0.002
"""So long engines are built before whatever else has to be done gets its turn."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A configuration ready for use."""

    snapshot: Snapshot
    generation: Generation
    auth: Authenticator


async def compile_snapshot(
    snapshot: Snapshot,
    clock: Clock,
    *,
    untagged_metrics: tuple[str, ...] = (),
    metrics: Metrics | None = None,
    before: Compiled | None = None,
) -> Compiled:
    """Build everything that a snapshot names; ``before`` is in use and stays so. Touches no network, and does
    what takes long off the loop. Raises ConfigError; what was built for nothing is closed."""
    snapshot = replace(snapshot, clusters=expanded(snapshot.clusters))
    kept = await in_thread(THREAD, _kept, snapshot, before) if before is not None else {}
    fresh: dict[str, Engine] = {}
    scripts = _scripts(snapshot, clock, metrics, before)
    ours = scripts is not None and (before is None or before.generation.scripts is not scripts)
    try:
        if scripts is not None and ours:
            await scripts.start()
        await _build(snapshot, kept, clock, fresh)
        engines = {name: kept.get(name) or fresh[name] for name in snapshot.clusters}
        generation = await in_thread(
            THREAD, _generation, snapshot, engines, untagged_metrics, before, scripts
        )
        auth = _authenticator(snapshot, clock, before)
    except BaseException:
        for engine in fresh.values():
            await engine.close()
        if scripts is not None and ours:
            await scripts.close()
        raise
    return Compiled(snapshot, generation, auth)


async def discard(compiled: Compiled, before: Compiled | None) -> None:
    """Close what was built for a configuration that is not used after all."""
    generation = compiled.generation
    used = {id(cluster.engine) for cluster in before.generation.clusters.values()} if before else set()
    for cluster in generation.clusters.values():
        if id(cluster.engine) not in used:
            await cluster.engine.close()
    if before is None or generation.translator is not before.generation.translator:
        await generation.translator.close()
    if generation.scripts is not None and (
        before is None or generation.scripts is not before.generation.scripts
    ):
        await generation.scripts.close()


async def _build(
    snapshot: Snapshot, kept: Mapping[str, Engine], clock: Clock, fresh: dict[str, Engine]
) -> None:
    """The engines that are new, into ``fresh``."""
    began = time.perf_counter()
    for name, config in snapshot.clusters.items():
        if name not in kept:
            fresh[name] = build_engine(name, config, clock)
            if time.perf_counter() - began > MOST_AT_ONCE_SECS:
                await asyncio.sleep(0)
                began = time.perf_counter()


def _kept(snapshot: Snapshot, before: Compiled) -> dict[str, Engine]:
    """The engines in use whose clusters have the same settings, as far as an engine looks at them."""
    known, clusters = before.snapshot.clusters, before.generation.clusters
    return {
        name: clusters[name].engine
        for name, config in snapshot.clusters.items()
        if name in known and _to_engine(known[name]) == _to_engine(config)
    }


def _to_engine(config: ClusterConfig) -> ClusterConfig:
    """Without what no engine looks at."""
    return replace(config, enabled=True, max_running_queries=None, reconcile_query=None)


def _authenticator(snapshot: Snapshot, clock: Clock, before: Compiled | None) -> Authenticator:
    if before is not None and before.snapshot.auth == snapshot.auth:
        return before.auth
    try:
        return build_authenticator(snapshot.auth, clock)
    except ConfigError as error:
        raise PrepareFailed("auth_rebuild", error) from error


def _generation(
    snapshot: Snapshot,
    engines: Mapping[str, Engine],
    untagged_metrics: tuple[str, ...],
    before: Compiled | None,
    scripts: ScriptHost | None,
) -> Generation:
    clusters = {
        name: Cluster(engines[name], Member(name, limit=config.max_running_queries, enabled=config.enabled))
        for name, config in snapshot.clusters.items()
    }
    fix_ups = _fix_ups(snapshot, scripts, before)
    groups = {
        name: _plan(name, group, clusters, fix_ups.get(name))
        for name, group in snapshot.cluster_groups.items()
    }
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
        chain=compile_routing(
            snapshot.routers, snapshot.routing_fallback, access, may_use=may_use_group, scripts=scripts
        ),
        groups=groups,
        clusters=clusters,
        translator=_translator(snapshot, before),
        scripts=scripts,
        untagged_metrics=frozenset(untagged_metrics),
        redaction=Redaction(snapshot.query_history.redaction),
    )


def _translator(snapshot: Snapshot, before: Compiled | None) -> Translator:
    mode = TranslationMode.STRICT if snapshot.translation.strict else TranslationMode.BEST_EFFORT
    if before is not None and before.generation.translator.mode is mode:
        return before.generation.translator
    return Translator(mode)


def _scripts(
    snapshot: Snapshot, clock: Clock, metrics: Metrics | None, before: Compiled | None
) -> ScriptHost | None:
    """Where scripts run: in the process that has them already, or in one that has to be started."""
    texts = tuple(
        Text(render_path(path), script)
        for path, script in scripts_of(snapshot.routers, snapshot.translation, snapshot.scripts)
    )
    if not texts:
        return None
    known = before.generation.scripts if before is not None else None
    return known if known is not None and known.texts == texts else ScriptHost(texts, clock, metrics)


def _fix_ups(snapshot: Snapshot, scripts: ScriptHost | None, before: Compiled | None) -> dict[str, FixUps]:
    """By group; groups without any are not there. With the same scripts it is as before, and remembers."""
    places = [path for path, _ in scripts_of(snapshot.routers, snapshot.translation, snapshot.scripts)]
    everywhere = [number for number, path in enumerate(places) if path[0] == "translation"]
    named = {path[1]: number for number, path in enumerate(places) if path[0] == "scripts"}
    remembered: TextCache[str] = TextCache(CACHE_BYTES)
    known = [plan.fix_ups for plan in before.generation.groups.values()] if before is not None else []
    result = {}
    for name, group in snapshot.cluster_groups.items():
        numbers = (*everywhere, *(named[one] for one in group.translation_scripts))
        if numbers and scripts is not None:
            made = FixUps(scripts, numbers, remembered)
            result[name] = next((one for one in known if one is not None and one.same_as(made)), made)
    return result


def _plan(
    name: str, config: ClusterGroupConfig, clusters: Mapping[str, Cluster], fix_ups: FixUps | None
) -> GroupPlan:
    group = Group(
        name,
        [clusters[member].member for member in config.members],
        limit=config.max_running_queries,
        max_queued=config.max_queued_queries,
        wait_secs=config.capacity_wait_secs,
        strategy=Strategy(str(config.strategy.__struct_config__.tag)),
    )
    return GroupPlan(
        group,
        enabled=config.enabled,
        query_timeout_secs=config.query_timeout_secs or None,
        idle_in_transaction_secs=config.idle_in_transaction_timeout_secs,
        default_tags=config.default_tags,
        fix_ups=fix_ups,
    )
