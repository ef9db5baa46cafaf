-- lowest compatible version: 1
-- The worker that ran a query.

ALTER TABLE query_records ADD COLUMN worker text;
COMMENT ON COLUMN query_records.worker IS 'Its worker name; null: the process that keeps the history itself.';
CREATE INDEX query_records_worker ON query_records (worker, created_at DESC) WHERE worker IS NOT NULL;
