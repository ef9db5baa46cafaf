-- lowest compatible version: 1
-- Tags of every query of a group, and how long one waits for room.

ALTER TABLE cluster_group_configs
    ADD COLUMN default_tags jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN capacity_wait_timeout_secs double precision CHECK (capacity_wait_timeout_secs >= 0);
COMMENT ON COLUMN cluster_group_configs.capacity_wait_timeout_secs IS 'Null: the default.';
