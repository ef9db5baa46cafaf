-- lowest compatible version: 1
-- Workers, as they last reported.

CREATE TABLE worker_registry (
    instance_id text PRIMARY KEY,
    worker_name text NOT NULL,
    advertise_address text,
    version text NOT NULL DEFAULT '',
    active_revision text,
    heartbeat_interval_secs double precision NOT NULL DEFAULT 10 CHECK (heartbeat_interval_secs > 0),
    registered_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN worker_registry.worker_name IS 'The same after a restart; the instance id is not.';
CREATE INDEX worker_registry_worker_name ON worker_registry (worker_name);
CREATE INDEX worker_registry_last_seen_at ON worker_registry (last_seen_at);
