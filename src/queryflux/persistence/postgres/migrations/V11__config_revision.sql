-- lowest compatible version: 1
-- A number that grows with each change of configuration, and a notice of it.

CREATE TABLE config_revision (
    id boolean PRIMARY KEY DEFAULT true CHECK (id),
    revision bigint NOT NULL DEFAULT 0 CHECK (revision >= 0),
    updated_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO config_revision DEFAULT VALUES;

CREATE FUNCTION queryflux_notify_config_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('config_revision_changed', NEW.revision::text);
    RETURN NULL;
END
$$;

CREATE TRIGGER config_revision_changed AFTER UPDATE ON config_revision
    FOR EACH ROW EXECUTE FUNCTION queryflux_notify_config_revision();
