-- lowest compatible version: 1
-- What access control made of a query.

ALTER TABLE query_records
    ADD COLUMN was_rewritten boolean NOT NULL DEFAULT false,
    ADD COLUMN rewritten_sql text;
