"""Every metric that QueryFlux exports, in one list."""

from dataclasses import dataclass

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 120, 300)
WAITS = (0.1, 0.5, 1, 5, 15, 30, 60, 120, 300)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its exported name, its kind, what it tells, its labels, and buckets for a histogram."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


CATALOGUE = (
    Metric(
        "queryflux_queries_total",
        "counter",
        "Queries that have ended",
        ("engine_type", "cluster_group", "status", "protocol"),
    ),
    Metric(
        "queryflux_query_duration_seconds",
        "histogram",
        "Time from admission to the end of a query",
        ("engine_type", "cluster_group"),
        SECONDS,
    ),
    Metric(
        "queryflux_queue_duration_seconds",
        "histogram",
        "Time that queries waited for room, of those that waited",
        ("cluster_group",),
        WAITS,
    ),
    Metric("queryflux_running_queries", "gauge", "Slots taken", ("cluster_group", "cluster_name")),
    Metric("queryflux_queued_queries", "gauge", "Queries that wait for room", ("cluster_group",)),
    Metric("queryflux_queue_rejections_total", "counter", "Refused: the queue was full", ("cluster_group",)),
    Metric(
        "queryflux_capacity_timeouts_total",
        "counter",
        "Refused: waited too long for room",
        ("cluster_group",),
    ),
    Metric(
        "queryflux_translated_queries_total",
        "counter",
        "Queries whose text was changed for the engine's dialect",
        ("src_dialect", "tgt_dialect"),
    ),
    Metric("queryflux_translation_skipped_total", "counter", "Forwarded untranslated", ("reason",)),
    Metric(
        "queryflux_query_tags_total", "counter", "Queries by tag", ("tag_key", "tag_value", "cluster_group")
    ),
    Metric(
        "queryflux_auth_failures_total", "counter", "Clients refused for their credentials", ("protocol",)
    ),
    Metric("queryflux_connections", "gauge", "Client connections open now", ("protocol",)),
    Metric("queryflux_connections_accepted_total", "counter", "Client connections accepted", ("protocol",)),
    Metric(
        "queryflux_connections_refused_total", "counter", "Connections over maxConnections", ("protocol",)
    ),
    Metric(
        "queryflux_config_reload_failures_total",
        "counter",
        "Stored configurations that could not be read or used; the last good one stayed",
        ("stage",),
    ),
    Metric(
        "queryflux_script_duration_seconds",
        "histogram",
        "Time that calls of scripts took, waiting for their turn included",
        ("kind",),
        (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 5),
    ),
    Metric("queryflux_script_failures_total", "counter", "Calls of scripts that failed", ("kind", "reason")),
    Metric("queryflux_cluster_up", "gauge", "1 when the cluster answered its last probe", ("cluster_name",)),
    Metric("queryflux_history_records", "gauge", "Query records kept in memory"),
    Metric("queryflux_store_pool_connections", "gauge", "Connections to our own database", ("pool",)),
    Metric("queryflux_store_pool_in_use", "gauge", "Connections to our own database in use", ("pool",)),
    Metric("queryflux_store_pool_waiting", "gauge", "Callers that wait for such a connection", ("pool",)),
    Metric("queryflux_history_records_waiting", "gauge", "Query records that wait to be stored"),
    Metric("queryflux_history_records_stored_total", "counter", "Query records that the store has"),
    Metric("queryflux_history_records_dropped_total", "counter", "Query records that the store never got"),
    Metric("queryflux_history_records_rejected_total", "counter", "Query records that the store refuses"),
    Metric(
        "queryflux_coordination_failures_total",
        "counter",
        "Calls that the capacity store did not answer",
        ("operation",),
    ),
    Metric(
        "queryflux_capacity_degraded_total",
        "counter",
        "Leases asked for that the capacity store gave no answer for; their queries wait",
        ("cluster_name",),
    ),
    Metric(
        "queryflux_capacity_lease_denied_total",
        "counter",
        "Leases refused: the fleet's limit was reached",
        ("cluster_name",),
    ),
    Metric(
        "queryflux_capacity_leases_lost_total",
        "counter",
        "Leases that had run out while their query ran",
        ("cluster_name",),
    ),
    Metric(
        "queryflux_cluster_leases",
        "gauge",
        "Leases out in the whole fleet, when last read",
        ("cluster_name",),
    ),
    Metric(
        "queryflux_engine_running_queries",
        "gauge",
        "Queries that the engine itself says it runs, when last asked",
        ("cluster_name",),
    ),
    Metric("queryflux_capacity_releases_queued", "gauge", "Releases that wait to be sent"),
    Metric(
        "queryflux_capacity_leases_expired_total",
        "counter",
        "Leases of any process that this one's sweeps ended",
    ),
    Metric(
        "queryflux_capacity_counters_recounted_total",
        "counter",
        "Counters that this process's sweeps corrected",
        ("cluster_name",),
    ),
    Metric(
        "queryflux_worker_config_stale",
        "gauge",
        "1 while a worker runs a configuration copied from another worker that nobody has confirmed",
    ),
    Metric(
        "queryflux_worker_heartbeat_failures_total",
        "counter",
        "Reports of this worker that its control plane did not take",
    ),
    Metric("queryflux_ready_workers", "gauge", "Workers of this process that take queries"),
    Metric(
        "queryflux_worker_restarts_total",
        "counter",
        "Workers of this process that ended unasked and were started again",
        ("worker",),
    ),
    Metric(
        "queryflux_sibling_questions_total",
        "counter",
        "Questions that this process put to another one behind the same ports",
        ("question", "outcome"),
    ),
)
