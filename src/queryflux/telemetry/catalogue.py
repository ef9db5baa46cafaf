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
    Metric("queryflux_cluster_up", "gauge", "1 when the cluster answered its last probe", ("cluster_name",)),
    Metric("queryflux_history_records", "gauge", "Query records kept in memory"),
)
