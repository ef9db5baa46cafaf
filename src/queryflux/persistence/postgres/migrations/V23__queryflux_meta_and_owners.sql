-- lowest compatible version: 20
-- The database's epoch, settings without a column, owners of running queries, and how a query ended.

CREATE TABLE queryflux_meta (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch uuid NOT NULL DEFAULT gen_random_uuid(),
    epoch_since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN queryflux_meta.epoch IS
    'New when the database is new, or was restored (queryflux migrate --new-epoch): config_revision of one epoch '
    'says nothing about that of another.';
INSERT INTO queryflux_meta DEFAULT VALUES;

ALTER TABLE cluster_group_configs
    ADD COLUMN settings jsonb NOT NULL DEFAULT '{}',
    ALTER COLUMN max_running_queries DROP NOT NULL,
    ALTER COLUMN max_running_queries DROP DEFAULT;
COMMENT ON COLUMN cluster_group_configs.settings IS 'Every key of the group that has no column.';
COMMENT ON COLUMN cluster_group_configs.max_running_queries IS 'On each member without a value; null: no limit.';

ALTER TABLE executing_queries
    ADD COLUMN proxy_query_id text,
    ADD COLUMN owner text,
    ADD COLUMN advertise_address text,
    ADD COLUMN cluster_group text NOT NULL DEFAULT '',
    ADD COLUMN cluster_name text NOT NULL DEFAULT '',
    ADD COLUMN last_accessed timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN executing_queries.owner IS 'Instance id of the process that runs it.';
COMMENT ON COLUMN executing_queries.advertise_address IS 'How other processes reach the owner; null: they cannot.';
CREATE UNIQUE INDEX executing_queries_proxy_query_id ON executing_queries (proxy_query_id);
CREATE INDEX executing_queries_owner ON executing_queries (owner, last_accessed);
CREATE INDEX executing_queries_last_accessed ON executing_queries (last_accessed);

ALTER TABLE query_records
    ADD COLUMN sql_text text,
    ADD COLUMN reason text,
    ADD COLUMN error_code text,
    ADD COLUMN instance_id text;
COMMENT ON COLUMN query_records.sql_text IS 'The text as far as history keeps it; sql_preview is its beginning.';
COMMENT ON COLUMN query_records.reason IS 'Why the query ended; status says how.';
COMMENT ON COLUMN query_records.instance_id IS 'The process that ran it.';
