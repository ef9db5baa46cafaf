-- lowest compatible version: 1
-- Digests: queries that differ only in their literals count together.

ALTER TABLE query_records
    ADD COLUMN query_hash bigint,
    ADD COLUMN query_parameterized_hash bigint,
    ADD COLUMN translated_query_hash bigint;
COMMENT ON COLUMN query_records.query_hash IS 'xxHash64, its 64 bits read as a signed number; so are the others.';
CREATE INDEX query_records_parameterized_hash ON query_records (query_parameterized_hash, created_at DESC)
    WHERE query_parameterized_hash IS NOT NULL;

CREATE TABLE query_digest_stats (
    query_parameterized_hash bigint PRIMARY KEY,
    digest_text text NOT NULL,
    translated_query_hash bigint,
    translated_digest_text text,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    call_count bigint NOT NULL DEFAULT 0,
    sum_execution_ms double precision NOT NULL DEFAULT 0,
    sum_rows_returned bigint NOT NULL DEFAULT 0,
    cluster_group text NOT NULL DEFAULT ''
);
COMMENT ON COLUMN query_digest_stats.cluster_group IS 'Group of the latest query.';
CREATE INDEX query_digest_stats_last_seen ON query_digest_stats (last_seen DESC);
