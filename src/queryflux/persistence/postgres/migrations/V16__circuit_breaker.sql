-- lowest compatible version: 1
-- When a group leaves a failing member alone.

ALTER TABLE cluster_group_configs ADD COLUMN circuit_breaker jsonb;
COMMENT ON COLUMN cluster_group_configs.circuit_breaker IS 'Null: off.';
