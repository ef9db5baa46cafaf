-- lowest compatible version: 1
-- Several processes: who dispatches a waiting query, and who holds a place on a cluster.

ALTER TABLE queued_queries
    ADD COLUMN claimed_by text,
    ADD COLUMN claimed_at timestamptz,
    ADD COLUMN cluster_group text NOT NULL DEFAULT '',
    ADD COLUMN last_accessed timestamptz NOT NULL DEFAULT now(),
    ADD CONSTRAINT queued_queries_claim_check CHECK ((claimed_by IS NULL) = (claimed_at IS NULL));
COMMENT ON COLUMN queued_queries.last_accessed IS 'When its client last asked.';
UPDATE queued_queries
    SET cluster_group = coalesce(data ->> 'cluster_group', ''),
        last_accessed = coalesce((data ->> 'last_accessed')::timestamptz, created_at);
CREATE INDEX queued_queries_unclaimed ON queued_queries (created_at) WHERE claimed_at IS NULL;
CREATE INDEX queued_queries_claimed ON queued_queries (claimed_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX queued_queries_group ON queued_queries (cluster_group, last_accessed);

CREATE TABLE cluster_capacity_leases (
    query_id text PRIMARY KEY,
    cluster_name text NOT NULL,
    instance_id text NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX cluster_capacity_leases_cluster_name ON cluster_capacity_leases (cluster_name);
CREATE INDEX cluster_capacity_leases_heartbeat_at ON cluster_capacity_leases (heartbeat_at);
CREATE INDEX cluster_capacity_leases_instance_id ON cluster_capacity_leases (instance_id);

CREATE TABLE cluster_capacity_counters (
    cluster_name text PRIMARY KEY,
    running bigint NOT NULL DEFAULT 0 CHECK (running >= 0)
);
COMMENT ON COLUMN cluster_capacity_counters.running IS
    'What the engine says it runs; shown, and never mixed into admission.';
