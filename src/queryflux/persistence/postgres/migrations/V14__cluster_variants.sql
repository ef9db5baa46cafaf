-- lowest compatible version: 1
-- Several runtime clusters out of one.

ALTER TABLE cluster_configs ADD COLUMN variants jsonb NOT NULL DEFAULT '[]';
