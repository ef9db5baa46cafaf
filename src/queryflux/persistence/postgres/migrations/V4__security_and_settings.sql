-- lowest compatible version: 1
-- Identity and authorization, and settings by key.

CREATE TABLE security_settings (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    config jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN security_settings.config IS 'Empty: the configuration file''s auth and authorization count.';
INSERT INTO security_settings DEFAULT VALUES;

CREATE TABLE proxy_settings (
    key text PRIMARY KEY,
    value jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
