-- lowest compatible version: 20
-- Which process answers for a running query, where its engine keeps the next page, and what processes of this
-- database know each other by.

ALTER TABLE executing_queries
    ADD COLUMN claimed_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN next_token integer,
    ADD COLUMN next_uri text,
    ADD COLUMN last_uri text;
COMMENT ON COLUMN executing_queries.claimed_at IS 'When the owner last said that it is alive.';
COMMENT ON COLUMN executing_queries.next_token IS 'The page that the client asks for next, as its URI numbers it.';
COMMENT ON COLUMN executing_queries.next_uri IS
    'Where the engine keeps that page; null: the result is the owner''s alone.';
COMMENT ON COLUMN executing_queries.last_uri IS 'Where it keeps the page before.';
ALTER TABLE executing_queries SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- No longer than queries run, and changed with each page: these indexes cost more than they save.
DROP INDEX executing_queries_owner;
DROP INDEX executing_queries_last_accessed;

ALTER TABLE queryflux_meta
    ADD COLUMN relay_key bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
COMMENT ON COLUMN queryflux_meta.relay_key IS
    'Secret of the processes of this database, by which one proves to another that it relays a client''s request.';
