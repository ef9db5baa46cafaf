-- lowest compatible version: 1
-- Configuration of clusters and groups, queries under way, history, and cluster snapshots.

CREATE TABLE cluster_configs (
    id bigserial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    engine_key text NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    max_running_queries bigint CHECK (max_running_queries >= 0),
    config jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN cluster_configs.max_running_queries IS 'Null: the group''s value.';
COMMENT ON COLUMN cluster_configs.config IS 'Every key of the cluster that has no column.';

CREATE TABLE cluster_group_configs (
    id bigserial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    enabled boolean NOT NULL DEFAULT true,
    members bigint[] NOT NULL DEFAULT '{}',
    max_running_queries bigint NOT NULL DEFAULT 10 CHECK (max_running_queries >= 0),
    max_queued_queries bigint CHECK (max_queued_queries >= 0),
    strategy jsonb,
    allow_groups text[] NOT NULL DEFAULT '{}',
    allow_users text[] NOT NULL DEFAULT '{}',
    translation_script_ids bigint[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN cluster_group_configs.members IS 'Ids of clusters, in the order that failover follows.';

CREATE TABLE executing_queries (
    id text PRIMARY KEY,
    data jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN executing_queries.id IS 'The engine''s own id of the query.';
CREATE INDEX executing_queries_created_at ON executing_queries (created_at);

CREATE TABLE queued_queries (
    id text PRIMARY KEY,
    data jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN queued_queries.id IS 'The id that the client holds.';
CREATE INDEX queued_queries_created_at ON queued_queries (created_at);

CREATE TABLE query_records (
    id bigserial PRIMARY KEY,
    proxy_query_id text NOT NULL,
    cluster_group text NOT NULL DEFAULT '',
    cluster_name text NOT NULL DEFAULT '',
    cluster_group_id bigint REFERENCES cluster_group_configs (id) ON DELETE SET NULL,
    cluster_id bigint REFERENCES cluster_configs (id) ON DELETE SET NULL,
    engine_type text NOT NULL DEFAULT '',
    frontend_protocol text NOT NULL,
    source_dialect text NOT NULL DEFAULT '',
    target_dialect text NOT NULL DEFAULT '',
    was_translated boolean NOT NULL DEFAULT false,
    username text,
    catalog text,
    db_name text,
    sql_preview text NOT NULL DEFAULT '',
    translated_sql text,
    status text NOT NULL,
    routing_trace jsonb,
    queue_duration_ms double precision NOT NULL DEFAULT 0,
    execution_duration_ms double precision NOT NULL DEFAULT 0,
    rows_returned bigint,
    error_message text,
    backend_query_id text,
    cpu_time_ms bigint,
    processed_rows bigint,
    processed_bytes bigint,
    physical_input_bytes bigint,
    peak_memory_bytes bigint,
    spilled_bytes bigint,
    total_splits integer,
    engine_elapsed_time_ms bigint,
    created_at timestamptz NOT NULL
);
CREATE INDEX query_records_created_at ON query_records (created_at DESC);
CREATE INDEX query_records_group ON query_records (cluster_group, created_at DESC);
CREATE INDEX query_records_status ON query_records (status, created_at DESC);
CREATE INDEX query_records_proxy_query_id ON query_records (proxy_query_id);
CREATE INDEX query_records_backend_query_id ON query_records (backend_query_id)
    WHERE backend_query_id IS NOT NULL;
CREATE INDEX query_records_group_id ON query_records (cluster_group_id, created_at DESC);
CREATE INDEX query_records_cluster_id ON query_records (cluster_id, created_at DESC);

CREATE TABLE cluster_snapshots (
    id bigserial PRIMARY KEY,
    cluster_name text NOT NULL,
    group_name text NOT NULL,
    engine_type text NOT NULL,
    running_queries integer NOT NULL,
    queued_queries integer NOT NULL,
    max_running_queries integer,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX cluster_snapshots_recorded_at ON cluster_snapshots (recorded_at DESC);
CREATE INDEX cluster_snapshots_group ON cluster_snapshots (group_name, recorded_at DESC);
