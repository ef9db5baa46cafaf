-- lowest compatible version: 1
-- Guards, global and of each group, and a kind of script for them.

CREATE TABLE guardrails (
    kind text PRIMARY KEY,
    guards jsonb NOT NULL DEFAULT '[]',
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN guardrails.kind IS '''global'', or the name of a group.';

ALTER TABLE user_scripts
    DROP CONSTRAINT user_scripts_kind_check,
    ADD CONSTRAINT user_scripts_kind_check CHECK (kind IN ('translation_fixup', 'routing', 'guard'));

ALTER TABLE query_records
    ADD COLUMN guard_actions jsonb,
    ADD COLUMN was_guard_blocked boolean NOT NULL DEFAULT false;
