-- lowest compatible version: 1
-- What became of a query's translation.

ALTER TABLE query_records
    ADD COLUMN translation_status text,
    ADD COLUMN translation_reason text,
    ADD COLUMN translation_message text,
    ADD COLUMN translation_position integer;
COMMENT ON COLUMN query_records.translation_position IS 'Offset in the client''s text, from 0.';
