-- lowest compatible version: 1
-- What is known of cached results; the results themselves are elsewhere.

CREATE TABLE cache_entries (
    cache_key text PRIMARY KEY,
    group_name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    row_count bigint,
    size_bytes bigint
);
CREATE INDEX cache_entries_expires_at ON cache_entries (expires_at);
CREATE INDEX cache_entries_group_name ON cache_entries (group_name);

ALTER TABLE cluster_group_configs ADD COLUMN cache jsonb;
COMMENT ON COLUMN cluster_group_configs.cache IS 'Null: off.';

ALTER TABLE query_records ADD COLUMN cache_hit boolean NOT NULL DEFAULT false;
