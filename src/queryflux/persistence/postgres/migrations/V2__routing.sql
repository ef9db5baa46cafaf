-- lowest compatible version: 1
-- Routers, in order; one router is a slice for each group that it names.

CREATE TABLE routing_settings (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    routing_fallback text NOT NULL DEFAULT '',
    routing_persist_active boolean NOT NULL DEFAULT false,
    fallback_group_id bigint REFERENCES cluster_group_configs (id) ON DELETE SET NULL
);
COMMENT ON COLUMN routing_settings.routing_persist_active IS
    'Whether the database''s routers count; until then the configuration file''s do.';
INSERT INTO routing_settings DEFAULT VALUES;

CREATE TABLE routing_rules (
    id bigserial PRIMARY KEY,
    sort_order integer NOT NULL,
    router_logical_index integer NOT NULL DEFAULT 0,
    slice_index integer NOT NULL DEFAULT 0,
    definition jsonb NOT NULL,
    target_group_id bigint REFERENCES cluster_group_configs (id) ON DELETE RESTRICT,
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN routing_rules.target_group_id IS 'Null: a script chooses.';
CREATE INDEX routing_rules_sort_order ON routing_rules (sort_order);
CREATE INDEX routing_rules_target_group_id ON routing_rules (target_group_id);
