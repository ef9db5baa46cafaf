"""The statements of the configuration in PostgreSQL. Rows travel as JSON, many in one statement."""

# ruff: noqa: S608 - everything that is put together here is a constant of this module

READ = """
SELECT
    (SELECT epoch::text FROM queryflux_meta),
    (SELECT revision FROM config_revision),
    json_build_object(
        'clusters', (
            SELECT coalesce(json_agg(json_build_object(
                'id', id, 'name', name, 'engine_key', engine_key, 'enabled', enabled,
                'max_running_queries', max_running_queries, 'config', config, 'variants', variants
            ) ORDER BY id), '[]') FROM cluster_configs),
        'groups', (
            SELECT coalesce(json_agg(json_build_object(
                'id', g.id, 'name', g.name, 'enabled', g.enabled,
                'members', ARRAY(
                    SELECT c.name FROM unnest(g.members) WITH ORDINALITY AS m (id, place)
                    JOIN cluster_configs c ON c.id = m.id ORDER BY m.place),
                'max_running_queries', g.max_running_queries,
                'max_queued_queries', g.max_queued_queries, 'strategy', g.strategy,
                'allow_groups', g.allow_groups, 'allow_users', g.allow_users,
                'translation_scripts', ARRAY(
                    SELECT coalesce(s.name, '#' || t.id)
                    FROM unnest(g.translation_script_ids) WITH ORDINALITY AS t (id, place)
                    LEFT JOIN user_scripts s ON s.id = t.id ORDER BY t.place),
                'default_tags', g.default_tags,
                'capacity_wait_timeout_secs', g.capacity_wait_timeout_secs,
                'circuit_breaker', g.circuit_breaker, 'cache', g.cache, 'settings', g.settings
            ) ORDER BY g.id), '[]') FROM cluster_group_configs g),
        'routing', (
            SELECT json_build_object(
                'fallback', coalesce(g.name, s.routing_fallback), 'active', s.routing_persist_active)
            FROM routing_settings s LEFT JOIN cluster_group_configs g ON g.id = s.fallback_group_id),
        'rules', (
            SELECT coalesce(json_agg(json_build_object(
                'router', r.router_logical_index, 'slice', r.slice_index,
                'definition', r.definition, 'target_group', g.name
            ) ORDER BY r.sort_order, r.id), '[]')
            FROM routing_rules r LEFT JOIN cluster_group_configs g ON g.id = r.target_group_id),
        'security', (SELECT config FROM security_settings),
        'guardrails', (SELECT coalesce(json_object_agg(kind, guards ORDER BY kind), '{}') FROM guardrails),
        'settings', (SELECT coalesce(json_object_agg(key, value ORDER BY key), '{}') FROM proxy_settings),
        'scripts', (
            SELECT coalesce(json_agg(json_build_object(
                'id', id, 'name', name, 'description', description, 'kind', kind, 'body', body
            ) ORDER BY id), '[]') FROM user_scripts)
    )::text
"""
"""Epoch, sequence, and a Tables in JSON."""

REVISION = "SELECT (SELECT epoch::text FROM queryflux_meta), (SELECT revision FROM config_revision)"
LOCK = "SELECT revision FROM config_revision FOR UPDATE"
BUMP = "UPDATE config_revision SET revision = revision + 1, updated_at = now() RETURNING revision"

_ROWS = "jsonb_array_elements($1::jsonb) WITH ORDINALITY AS rows (r, place)"
_CLUSTER = """
    r->>'name', r->>'engine_key', (r->>'enabled')::boolean, (r->>'max_running_queries')::bigint,
    r->'config', r->'variants'
"""
_CLUSTER_COLUMNS = "name, engine_key, enabled, max_running_queries, config, variants"
_GROUP = """
    r->>'name', (r->>'enabled')::boolean,
    ARRAY(SELECT jsonb_array_elements_text(r->'members')::bigint),
    (r->>'max_running_queries')::bigint, (r->>'max_queued_queries')::bigint,
    nullif(r->'strategy', 'null'),
    ARRAY(SELECT jsonb_array_elements_text(r->'allow_groups')),
    ARRAY(SELECT jsonb_array_elements_text(r->'allow_users')),
    ARRAY(SELECT jsonb_array_elements_text(r->'translation_scripts')::bigint),
    r->'default_tags', (r->>'capacity_wait_timeout_secs')::double precision,
    nullif(r->'circuit_breaker', 'null'), nullif(r->'cache', 'null'), r->'settings'
"""
_GROUP_COLUMNS = """
    name, enabled, members, max_running_queries, max_queued_queries, strategy, allow_groups, allow_users,
    translation_script_ids, default_tags, capacity_wait_timeout_secs, circuit_breaker, cache, settings
"""
_SCRIPT = "r->>'name', r->>'description', r->>'kind', r->>'body'"
_SCRIPT_COLUMNS = "name, description, kind, body"

TABLES = {
    "clusters": ("cluster_configs", _CLUSTER_COLUMNS, _CLUSTER),
    "groups": ("cluster_group_configs", _GROUP_COLUMNS, _GROUP),
    "scripts": ("user_scripts", _SCRIPT_COLUMNS, _SCRIPT),
}
"""Kinds of rows with an id and a name: table, columns, and what stands in them, of the JSON row ``r``."""


def insert(kind: str) -> str:
    """New rows, in order; gives id and name of each."""
    table, columns, values = TABLES[kind]
    return f"INSERT INTO {table} ({columns}) SELECT {values} FROM {_ROWS} ORDER BY place RETURNING id, name"


def update(kind: str) -> str:
    """Rows in place of those of the same ids; gives the ids that there were."""
    table, columns, values = TABLES[kind]
    return f"""
        UPDATE {table} AS row SET ({columns}, updated_at) = (SELECT {values}, now())
        FROM {_ROWS} WHERE row.id = (r->>'id')::bigint RETURNING row.id
    """


def make_way(kind: str) -> str:
    """The names of rows that get another one, so that two may exchange theirs."""
    return f"UPDATE {TABLES[kind][0]} SET name = chr(1) || id WHERE id = ANY ($1)"


def delete(kind: str) -> str:
    """Rows by id."""
    return f"DELETE FROM {TABLES[kind][0]} WHERE id = ANY ($1)"


DELETE_RULES = "DELETE FROM routing_rules"
INSERT_RULES = f"""
INSERT INTO routing_rules (sort_order, router_logical_index, slice_index, definition, target_group_id)
SELECT place - 1, (r->>'router')::integer, (r->>'slice')::integer, r->'definition', g.id
FROM {_ROWS} LEFT JOIN cluster_group_configs g ON g.name = r->>'target_group' ORDER BY place
"""
ROUTING = """
INSERT INTO routing_settings (routing_fallback, routing_persist_active, fallback_group_id)
VALUES ($1, $2, (SELECT id FROM cluster_group_configs WHERE name = $1))
ON CONFLICT (singleton) DO UPDATE SET routing_fallback = excluded.routing_fallback,
    routing_persist_active = excluded.routing_persist_active,
    fallback_group_id = excluded.fallback_group_id
"""
SECURITY = """
INSERT INTO security_settings (config) VALUES ($1::jsonb)
ON CONFLICT (singleton) DO UPDATE SET config = excluded.config, updated_at = now()
"""
DELETE_GUARDS = "DELETE FROM guardrails WHERE kind = ANY ($1)"
PUT_GUARDS = """
INSERT INTO guardrails (kind, guards) SELECT key, value FROM jsonb_each($1::jsonb)
ON CONFLICT (kind) DO UPDATE SET guards = excluded.guards, updated_at = now()
"""
DELETE_SETTINGS = "DELETE FROM proxy_settings WHERE key = ANY ($1)"
PUT_SETTINGS = """
INSERT INTO proxy_settings (key, value) SELECT key, value FROM jsonb_each($1::jsonb)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = now()
"""
