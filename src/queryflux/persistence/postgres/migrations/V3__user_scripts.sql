-- lowest compatible version: 1
-- Users' Python by name.

CREATE TABLE user_scripts (
    id bigserial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    description text NOT NULL DEFAULT '',
    kind text NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT user_scripts_kind_check CHECK (kind IN ('translation_fixup', 'routing'))
);
CREATE INDEX user_scripts_kind ON user_scripts (kind);
