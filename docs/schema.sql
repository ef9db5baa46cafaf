CREATE FUNCTION public.queryflux_capacity_adjust(p_cluster text, p_change bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE cluster_capacity_counters SET leased = greatest(leased + p_change, 0) WHERE cluster_name = p_cluster;
    WHILE NOT FOUND LOOP
        INSERT INTO cluster_capacity_counters (cluster_name) VALUES (p_cluster) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            UPDATE cluster_capacity_counters
                SET leased = (SELECT count(*) FROM cluster_capacity_leases WHERE cluster_name = p_cluster)
                WHERE cluster_name = p_cluster;
        ELSE
            UPDATE cluster_capacity_counters
                SET leased = greatest(leased + p_change, 0) WHERE cluster_name = p_cluster;
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION public.queryflux_capacity_adjust(p_cluster text, p_change bigint) IS 'For the triggers: the leases of a cluster changed by so many.';

CREATE FUNCTION public.queryflux_capacity_ahead(p_cluster text, p_instance text, p_taken bigint DEFAULT 0) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN (
        SELECT count(*)
        FROM cluster_capacity_waiters AS other
            LEFT JOIN cluster_capacity_waiters AS own
                ON own.cluster_name = p_cluster AND own.instance_id = p_instance
        WHERE other.cluster_name = p_cluster AND other.instance_id <> p_instance
            AND other.refused_at > p_taken
            AND other.seen_at > clock_timestamp() - interval '1.5 seconds'
            AND other.since < least(clock_timestamp() - interval '1 second', own.since));
END
$$;

COMMENT ON FUNCTION public.queryflux_capacity_ahead(p_cluster text, p_instance text, p_taken bigint) IS 'How many other processes a place each is left for, where so many are taken.';

CREATE FUNCTION public.queryflux_capacity_expire(p_older_than interval) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
DECLARE
    ended bigint;
BEGIN
    WITH stale AS MATERIALIZED (
        SELECT query_id FROM cluster_capacity_leases
        WHERE heartbeat_at < now() - p_older_than
        FOR UPDATE SKIP LOCKED)
    DELETE FROM cluster_capacity_leases AS lease USING stale WHERE lease.query_id = stale.query_id;
    GET DIAGNOSTICS ended = ROW_COUNT;
    WITH unknown AS MATERIALIZED (
        SELECT cluster_name FROM cluster_capacity_counters AS counter
        WHERE leased = 0 AND drift_seen = 0 AND NOT EXISTS (
            SELECT FROM cluster_configs AS cluster
                LEFT JOIN LATERAL jsonb_path_query(cluster.variants, '$[*].name') AS variant ON true
            WHERE counter.cluster_name = cluster.name || coalesce('::' || (variant #>> '{}'), ''))
        FOR UPDATE SKIP LOCKED)
    DELETE FROM cluster_capacity_counters AS counter USING unknown
        WHERE counter.cluster_name = unknown.cluster_name AND leased = 0;
    RETURN ended;
END
$_$;

COMMENT ON FUNCTION public.queryflux_capacity_expire(p_older_than interval) IS 'Ends leases that were not renewed for so long by this database''s clock; how many. Counters of clusters that are not configured go when nothing is leased there.';

CREATE FUNCTION public.queryflux_capacity_leases_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN SELECT cluster_name, count(*) AS rows FROM old_rows GROUP BY 1 ORDER BY 1 LOOP
        PERFORM queryflux_capacity_adjust(changed.cluster_name, -changed.rows);
    END LOOP;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.queryflux_capacity_leases_inserted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN SELECT cluster_name, count(*) AS rows FROM new_rows GROUP BY 1 ORDER BY 1 LOOP
        PERFORM queryflux_capacity_adjust(changed.cluster_name, changed.rows);
    END LOOP;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.queryflux_capacity_leases_updated() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN
        SELECT cluster_name, sum(part)::bigint AS rows
        FROM (SELECT cluster_name, 1 AS part FROM new_rows
              UNION ALL SELECT cluster_name, -1 FROM old_rows) AS parts
        GROUP BY 1 HAVING sum(part) <> 0 ORDER BY 1
    LOOP
        PERFORM queryflux_capacity_adjust(changed.cluster_name, changed.rows);
    END LOOP;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.queryflux_capacity_lock(p_cluster text) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT pg_advisory_xact_lock(hashtextextended('queryflux:capacity:' || p_cluster, 0))
$$;

COMMENT ON FUNCTION public.queryflux_capacity_lock(p_cluster text) IS 'The lock under which leases of a cluster are counted and inserted, until the end of the transaction.';

CREATE FUNCTION public.queryflux_capacity_publish_running(p_cluster text, p_running bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM queryflux_capacity_adjust(p_cluster, 0);
    UPDATE cluster_capacity_counters SET running = p_running WHERE cluster_name = p_cluster;
END
$$;

CREATE FUNCTION public.queryflux_capacity_recount(p_cluster text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    counted bigint;
BEGIN
    PERFORM queryflux_capacity_require_read_committed();
    PERFORM queryflux_capacity_lock(p_cluster);
    INSERT INTO cluster_capacity_counters (cluster_name) VALUES (p_cluster) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM cluster_capacity_counters WHERE cluster_name = p_cluster FOR UPDATE;
    SELECT count(*) INTO counted FROM cluster_capacity_leases WHERE cluster_name = p_cluster;
    UPDATE cluster_capacity_counters SET leased = counted
        WHERE cluster_name = p_cluster AND leased <> counted;
    RETURN counted;
END
$$;

COMMENT ON FUNCTION public.queryflux_capacity_recount(p_cluster text) IS 'Sets a counter to its lease rows, under both locks, and gives the count.';

CREATE FUNCTION public.queryflux_capacity_renew(p_instance text, p_query_ids text[]) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    WITH held AS MATERIALIZED (
        SELECT query_id FROM cluster_capacity_leases
        WHERE instance_id = p_instance AND query_id = ANY (p_query_ids)
        FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE cluster_capacity_leases AS lease SET heartbeat_at = clock_timestamp()
        FROM held WHERE lease.query_id = held.query_id
        RETURNING lease.query_id
$$;

COMMENT ON FUNCTION public.queryflux_capacity_renew(p_instance text, p_query_ids text[]) IS 'Renews what this process names and still holds, and gives it. A row that somebody has locked is left out.';

CREATE FUNCTION public.queryflux_capacity_require_read_committed() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'leases are counted in READ COMMITTED only, this transaction is %',
                upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state',
                  HINT = 'Under another isolation a count under the lock may not see what was committed before it.';
    END IF;
END
$$;

CREATE FUNCTION public.queryflux_capacity_served(p_cluster text, p_instance text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM cluster_capacity_waiters WHERE cluster_name = p_cluster AND instance_id = p_instance;
END
$$;

CREATE FUNCTION public.queryflux_capacity_settle(p_cluster text, OUT was bigint, OUT became bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    seen bigint;
    counted bigint;
BEGIN
    PERFORM queryflux_capacity_require_read_committed();
    PERFORM queryflux_capacity_lock(p_cluster);
    SELECT leased, drift_seen INTO was, seen
        FROM cluster_capacity_counters WHERE cluster_name = p_cluster FOR UPDATE;
    IF NOT FOUND THEN
        was := 0;
        became := queryflux_capacity_recount(p_cluster);
        RETURN;
    END IF;
    SELECT count(*) INTO counted FROM cluster_capacity_leases WHERE cluster_name = p_cluster;
    became := was;
    IF was > counted AND was - counted <> seen THEN
        UPDATE cluster_capacity_counters SET drift_seen = was - counted WHERE cluster_name = p_cluster;
        RETURN;
    END IF;
    IF was <> counted THEN
        became := queryflux_capacity_recount(p_cluster);
    END IF;
    IF seen <> 0 THEN
        UPDATE cluster_capacity_counters SET drift_seen = 0 WHERE cluster_name = p_cluster;
    END IF;
END
$$;

COMMENT ON FUNCTION public.queryflux_capacity_settle(p_cluster text, OUT was bigint, OUT became bigint) IS 'What a sweep does about a counter that differs from its lease rows.';

CREATE FUNCTION public.queryflux_capacity_try_acquire(p_cluster text, p_instance text, p_query_id text, p_max bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    taken bigint;
    ahead bigint := 0;
    same boolean;
    queue boolean;
BEGIN
    PERFORM queryflux_capacity_require_read_committed();
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM queryflux_capacity_lock(p_cluster);
    SELECT leased INTO taken FROM cluster_capacity_counters WHERE cluster_name = p_cluster;
    IF NOT FOUND THEN
        SELECT count(*) INTO taken FROM cluster_capacity_leases WHERE cluster_name = p_cluster;
    END IF;
    SELECT cluster_name = p_cluster AND instance_id = p_instance INTO same
        FROM cluster_capacity_leases WHERE query_id = p_query_id;
    IF FOUND THEN
        IF same THEN
            -- Its reply may have been lost long ago: it is as good as new, or, while somebody ends it, not ours.
            PERFORM queryflux_capacity_renew(p_instance, ARRAY[p_query_id]);
            same := FOUND;
        END IF;
        RETURN same;
    END IF;
    queue := EXISTS (SELECT FROM cluster_capacity_waiters WHERE cluster_name = p_cluster);
    IF queue THEN
        ahead := queryflux_capacity_ahead(p_cluster, p_instance, taken);
    END IF;
    IF taken + ahead >= p_max THEN
        PERFORM queryflux_capacity_waits(p_cluster, p_instance, false, p_max);
        RETURN false;
    END IF;
    INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id, acquired_at, heartbeat_at)
        VALUES (p_query_id, p_cluster, p_instance, clock_timestamp(), clock_timestamp())
        ON CONFLICT (query_id) DO NOTHING;
    same := FOUND;
    IF queue THEN
        PERFORM queryflux_capacity_served(p_cluster, p_instance);
    END IF;
    RETURN same;
END
$$;

COMMENT ON FUNCTION public.queryflux_capacity_try_acquire(p_cluster text, p_instance text, p_query_id text, p_max bigint) IS 'Takes a lease if fewer than p_max are out. True also when this process holds it already; false while another process, or another cluster, holds a lease of this query id.';

CREATE FUNCTION public.queryflux_capacity_try_acquire_many(p_cluster text, p_instance text, p_query_ids text[], p_limits bigint[], p_released text[]) RETURNS boolean[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    asked CONSTANT int := cardinality(p_query_ids);
    taken bigint;
    ahead bigint := 0;
    refused bigint;
    known text[];
    mine text[];
    fresh text[];
    inserted bigint;
    granted boolean[];
    plain boolean := p_limits[1] = ALL (p_limits);
    given bigint := 0;
    queue boolean;
BEGIN
    PERFORM queryflux_capacity_require_read_committed();
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM queryflux_capacity_lock(p_cluster);
    IF cardinality(p_released) > 0 THEN
        DELETE FROM cluster_capacity_leases
            WHERE query_id = ANY (p_released) AND cluster_name = p_cluster AND instance_id = p_instance;
        GET DIAGNOSTICS given = ROW_COUNT;
    END IF;
    queue := EXISTS (SELECT FROM cluster_capacity_waiters WHERE cluster_name = p_cluster);
    LOOP
        SELECT leased INTO taken FROM cluster_capacity_counters WHERE cluster_name = p_cluster;
        IF NOT FOUND THEN
            SELECT count(*) INTO taken FROM cluster_capacity_leases WHERE cluster_name = p_cluster;
        END IF;
        IF queue THEN
            ahead := queryflux_capacity_ahead(p_cluster, p_instance, taken);
        END IF;
        SELECT array_agg(query_id),
               array_agg(query_id) FILTER (WHERE cluster_name = p_cluster AND instance_id = p_instance)
            INTO known, mine
            FROM cluster_capacity_leases WHERE query_id = ANY (p_query_ids);
        IF mine IS NOT NULL THEN
            SELECT array_agg(query_id) INTO mine FROM queryflux_capacity_renew(p_instance, mine) AS query_id;
        END IF;
        refused := NULL;
        IF known IS NULL AND plain AND ahead = 0 THEN
            -- As nearly always: nobody has any of them or goes first, and one limit holds for all.
            fresh := p_query_ids[1 : least(greatest(p_limits[1] - taken, 0), asked)];
            granted := array_fill(true, ARRAY[cardinality(fresh)])
                || array_fill(false, ARRAY[asked - cardinality(fresh)]);
            IF cardinality(fresh) < asked THEN
                refused := p_limits[1];
            END IF;
        ELSE
            fresh := '{}';
            FOR place IN 1 .. asked LOOP
                granted[place] := p_query_ids[place] = ANY (fresh)
                    OR coalesce(p_query_ids[place] = ANY (mine), false);
                CONTINUE WHEN granted[place] OR p_query_ids[place] = ANY (known);
                -- With a place more taken others may not count any more: who was refused before is not overtaken.
                IF taken + ahead < p_limits[place] AND p_limits[place] > coalesce(refused, -1) THEN
                    granted[place] := true;
                    fresh := fresh || p_query_ids[place];
                    taken := taken + 1;
                    IF ahead > 0 THEN
                        ahead := queryflux_capacity_ahead(p_cluster, p_instance, taken);
                    END IF;
                ELSE
                    refused := greatest(refused, p_limits[place]);
                END IF;
            END LOOP;
        END IF;
        inserted := 0;
        EXIT WHEN cardinality(fresh) = 0;
        WITH leases AS (
            INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id, acquired_at, heartbeat_at)
                SELECT query_id, p_cluster, p_instance, clock_timestamp(), clock_timestamp()
                FROM unnest(fresh) AS query_id
                ON CONFLICT (query_id) DO NOTHING
                RETURNING 1)
        SELECT count(*) INTO inserted FROM leases;
        EXIT WHEN inserted = cardinality(fresh);
        plain := false;  -- an id came twice, or another cluster's call has just taken it: look again
    END LOOP;
    IF refused IS NOT NULL THEN
        PERFORM queryflux_capacity_waits(p_cluster, p_instance, inserted > given, refused);
    ELSIF queue AND NOT false = ANY (granted) THEN
        PERFORM queryflux_capacity_served(p_cluster, p_instance);
    END IF;
    RETURN granted;
END
$$;

COMMENT ON FUNCTION public.queryflux_capacity_try_acquire_many(p_cluster text, p_instance text, p_query_ids text[], p_limits bigint[], p_released text[]) IS 'Releases p_released of this process on this cluster, then takes a lease for each of p_query_ids, in their order, as long as fewer than its own limit are out.';

CREATE FUNCTION public.queryflux_capacity_waits(p_cluster text, p_instance text, p_gained boolean, p_limit bigint DEFAULT '9223372036854775807'::bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO cluster_capacity_waiters AS own (cluster_name, instance_id, since, seen_at, refused_at)
        VALUES (p_cluster, p_instance, clock_timestamp(), clock_timestamp(), p_limit)
    ON CONFLICT (cluster_name, instance_id) DO UPDATE
        SET since = CASE WHEN p_gained OR p_limit > own.refused_at
                              OR own.seen_at < excluded.seen_at - interval '1.5 seconds'
                         THEN excluded.since ELSE own.since END,
            seen_at = CASE WHEN p_limit >= own.refused_at OR own.seen_at < excluded.seen_at - interval '1.5 seconds'
                           THEN excluded.seen_at ELSE own.seen_at END,
            refused_at = CASE WHEN own.seen_at < excluded.seen_at - interval '1.5 seconds'
                              THEN p_limit ELSE greatest(p_limit, own.refused_at) END;
END
$$;

CREATE FUNCTION public.queryflux_notify_config_revision() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('config_revision_changed', NEW.revision::text);
    RETURN NULL;
END
$$;

CREATE TABLE public.cache_entries (
    cache_key text NOT NULL,
    group_name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    row_count bigint,
    size_bytes bigint
);

CREATE TABLE public.cluster_capacity_counters (
    cluster_name text NOT NULL,
    running bigint DEFAULT 0 NOT NULL,
    leased bigint DEFAULT 0 NOT NULL,
    drift_seen bigint DEFAULT 0 NOT NULL,
    CONSTRAINT cluster_capacity_counters_leased_check CHECK ((leased >= 0)),
    CONSTRAINT cluster_capacity_counters_running_check CHECK ((running >= 0))
)
WITH (fillfactor='40');

COMMENT ON COLUMN public.cluster_capacity_counters.running IS 'What the engine says it runs; shown, and never mixed into admission.';

COMMENT ON COLUMN public.cluster_capacity_counters.leased IS 'Rows of cluster_capacity_leases; what admission compares.';

COMMENT ON COLUMN public.cluster_capacity_counters.drift_seen IS 'By how much the last sweep found leased above the lease rows.';

CREATE TABLE public.cluster_capacity_leases (
    query_id text NOT NULL,
    cluster_name text NOT NULL,
    instance_id text NOT NULL,
    acquired_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000');

CREATE UNLOGGED TABLE public.cluster_capacity_waiters (
    cluster_name text NOT NULL,
    instance_id text NOT NULL,
    since timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    refused_at bigint DEFAULT '9223372036854775807'::bigint NOT NULL
);

COMMENT ON TABLE public.cluster_capacity_waiters IS 'Processes that were refused a lease and keep asking.';

COMMENT ON COLUMN public.cluster_capacity_waiters.since IS 'When it was first refused, or last had one place more.';

COMMENT ON COLUMN public.cluster_capacity_waiters.seen_at IS 'When it last asked; one that stopped asking does not count.';

COMMENT ON COLUMN public.cluster_capacity_waiters.refused_at IS 'The highest limit at which it was refused of late; the row is about that one.';

CREATE TABLE public.cluster_configs (
    id bigint NOT NULL,
    name text NOT NULL,
    engine_key text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    max_running_queries bigint,
    config jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    variants jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT cluster_configs_max_running_queries_check CHECK ((max_running_queries >= 0))
);

COMMENT ON COLUMN public.cluster_configs.max_running_queries IS 'Null: the group''s value.';

COMMENT ON COLUMN public.cluster_configs.config IS 'Every key of the cluster that has no column.';

CREATE SEQUENCE public.cluster_configs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.cluster_configs_id_seq OWNED BY public.cluster_configs.id;

CREATE TABLE public.cluster_group_configs (
    id bigint NOT NULL,
    name text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    members bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    max_running_queries bigint,
    max_queued_queries bigint,
    strategy jsonb,
    allow_groups text[] DEFAULT '{}'::text[] NOT NULL,
    allow_users text[] DEFAULT '{}'::text[] NOT NULL,
    translation_script_ids bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    cache jsonb,
    default_tags jsonb DEFAULT '{}'::jsonb NOT NULL,
    capacity_wait_timeout_secs double precision,
    circuit_breaker jsonb,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT cluster_group_configs_capacity_wait_timeout_secs_check CHECK ((capacity_wait_timeout_secs >= (0)::double precision)),
    CONSTRAINT cluster_group_configs_max_queued_queries_check CHECK ((max_queued_queries >= 0)),
    CONSTRAINT cluster_group_configs_max_running_queries_check CHECK ((max_running_queries >= 0))
);

COMMENT ON COLUMN public.cluster_group_configs.members IS 'Ids of clusters, in the order that failover follows.';

COMMENT ON COLUMN public.cluster_group_configs.max_running_queries IS 'On each member without a value; null: no limit.';

COMMENT ON COLUMN public.cluster_group_configs.cache IS 'Null: off.';

COMMENT ON COLUMN public.cluster_group_configs.capacity_wait_timeout_secs IS 'Null: the default.';

COMMENT ON COLUMN public.cluster_group_configs.circuit_breaker IS 'Null: off.';

COMMENT ON COLUMN public.cluster_group_configs.settings IS 'Every key of the group that has no column.';

CREATE SEQUENCE public.cluster_group_configs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.cluster_group_configs_id_seq OWNED BY public.cluster_group_configs.id;

CREATE TABLE public.cluster_snapshots (
    id bigint NOT NULL,
    cluster_name text NOT NULL,
    group_name text NOT NULL,
    engine_type text NOT NULL,
    running_queries integer NOT NULL,
    queued_queries integer NOT NULL,
    max_running_queries integer,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE public.cluster_snapshots_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.cluster_snapshots_id_seq OWNED BY public.cluster_snapshots.id;

CREATE TABLE public.config_revision (
    id boolean DEFAULT true NOT NULL,
    revision bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT config_revision_id_check CHECK (id),
    CONSTRAINT config_revision_revision_check CHECK ((revision >= 0))
);

CREATE TABLE public.executing_queries (
    id text NOT NULL,
    data jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    proxy_query_id text,
    owner text,
    advertise_address text,
    cluster_group text DEFAULT ''::text NOT NULL,
    cluster_name text DEFAULT ''::text NOT NULL,
    last_accessed timestamp with time zone DEFAULT now() NOT NULL,
    claimed_at timestamp with time zone DEFAULT now() NOT NULL,
    next_token integer,
    next_uri text,
    last_uri text
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000');

COMMENT ON COLUMN public.executing_queries.id IS 'The engine''s own id of the query.';

COMMENT ON COLUMN public.executing_queries.owner IS 'Instance id of the process that runs it.';

COMMENT ON COLUMN public.executing_queries.advertise_address IS 'How other processes reach the owner; null: they cannot.';

COMMENT ON COLUMN public.executing_queries.claimed_at IS 'When the owner last said that it is alive.';

COMMENT ON COLUMN public.executing_queries.next_token IS 'The page that the client asks for next, as its URI numbers it.';

COMMENT ON COLUMN public.executing_queries.next_uri IS 'Where the engine keeps that page; null: the result is the owner''s alone.';

COMMENT ON COLUMN public.executing_queries.last_uri IS 'Where it keeps the page before.';

CREATE TABLE public.guardrails (
    kind text NOT NULL,
    guards jsonb DEFAULT '[]'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON COLUMN public.guardrails.kind IS '''global'', or the name of a group.';

CREATE TABLE public.proxy_settings (
    key text NOT NULL,
    value jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.query_digest_stats (
    query_parameterized_hash bigint NOT NULL,
    digest_text text NOT NULL,
    translated_query_hash bigint,
    translated_digest_text text,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    call_count bigint DEFAULT 0 NOT NULL,
    sum_execution_ms double precision DEFAULT 0 NOT NULL,
    sum_rows_returned bigint DEFAULT 0 NOT NULL,
    cluster_group text DEFAULT ''::text NOT NULL
);

COMMENT ON COLUMN public.query_digest_stats.cluster_group IS 'Group of the latest query.';

CREATE TABLE public.query_records (
    id bigint NOT NULL,
    proxy_query_id text NOT NULL,
    cluster_group text DEFAULT ''::text NOT NULL,
    cluster_name text DEFAULT ''::text NOT NULL,
    cluster_group_id bigint,
    cluster_id bigint,
    engine_type text DEFAULT ''::text NOT NULL,
    frontend_protocol text NOT NULL,
    source_dialect text DEFAULT ''::text NOT NULL,
    target_dialect text DEFAULT ''::text NOT NULL,
    was_translated boolean DEFAULT false NOT NULL,
    username text,
    catalog text,
    db_name text,
    sql_preview text DEFAULT ''::text NOT NULL,
    translated_sql text,
    status text NOT NULL,
    routing_trace jsonb,
    queue_duration_ms double precision DEFAULT 0 NOT NULL,
    execution_duration_ms double precision DEFAULT 0 NOT NULL,
    rows_returned bigint,
    error_message text,
    backend_query_id text,
    cpu_time_ms bigint,
    processed_rows bigint,
    processed_bytes bigint,
    physical_input_bytes bigint,
    peak_memory_bytes bigint,
    spilled_bytes bigint,
    total_splits integer,
    engine_elapsed_time_ms bigint,
    created_at timestamp with time zone NOT NULL,
    guard_actions jsonb,
    was_guard_blocked boolean DEFAULT false NOT NULL,
    query_hash bigint,
    query_parameterized_hash bigint,
    translated_query_hash bigint,
    query_tags jsonb,
    agent_id text,
    conversation_id text,
    step_index integer,
    tool_call_id text,
    query_intent text,
    cache_hit boolean DEFAULT false NOT NULL,
    was_rewritten boolean DEFAULT false NOT NULL,
    rewritten_sql text,
    translation_status text,
    translation_reason text,
    translation_message text,
    translation_position integer,
    worker text,
    sql_text text,
    reason text,
    error_code text,
    instance_id text
);

COMMENT ON COLUMN public.query_records.query_hash IS 'xxHash64, its 64 bits read as a signed number; so are the others.';

COMMENT ON COLUMN public.query_records.translation_position IS 'Offset in the client''s text, from 0.';

COMMENT ON COLUMN public.query_records.worker IS 'Its worker name; null: the process that keeps the history itself.';

COMMENT ON COLUMN public.query_records.sql_text IS 'The text as far as history keeps it; sql_preview is its beginning.';

COMMENT ON COLUMN public.query_records.reason IS 'Why the query ended; status says how.';

COMMENT ON COLUMN public.query_records.instance_id IS 'The process that ran it.';

CREATE SEQUENCE public.query_records_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.query_records_id_seq OWNED BY public.query_records.id;

CREATE TABLE public.queryflux_meta (
    singleton boolean DEFAULT true NOT NULL,
    epoch uuid DEFAULT gen_random_uuid() NOT NULL,
    epoch_since timestamp with time zone DEFAULT now() NOT NULL,
    relay_key bytea DEFAULT (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) NOT NULL,
    CONSTRAINT queryflux_meta_singleton_check CHECK (singleton)
);

COMMENT ON COLUMN public.queryflux_meta.epoch IS 'New when the database is new, or was restored (queryflux migrate --new-epoch): config_revision of one epoch says nothing about that of another.';

COMMENT ON COLUMN public.queryflux_meta.relay_key IS 'Secret of the processes of this database, by which one proves to another that it relays a client''s request.';

CREATE TABLE public.queryflux_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    lowest_compatible integer NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.queued_queries (
    id text NOT NULL,
    data jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    claimed_by text,
    claimed_at timestamp with time zone,
    cluster_group text DEFAULT ''::text NOT NULL,
    last_accessed timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT queued_queries_claim_check CHECK (((claimed_by IS NULL) = (claimed_at IS NULL)))
);

COMMENT ON COLUMN public.queued_queries.id IS 'The id that the client holds.';

COMMENT ON COLUMN public.queued_queries.last_accessed IS 'When its client last asked.';

CREATE TABLE public.routing_rules (
    id bigint NOT NULL,
    sort_order integer NOT NULL,
    router_logical_index integer DEFAULT 0 NOT NULL,
    slice_index integer DEFAULT 0 NOT NULL,
    definition jsonb NOT NULL,
    target_group_id bigint,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON COLUMN public.routing_rules.target_group_id IS 'Null: a script chooses.';

CREATE SEQUENCE public.routing_rules_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.routing_rules_id_seq OWNED BY public.routing_rules.id;

CREATE TABLE public.routing_settings (
    singleton boolean DEFAULT true NOT NULL,
    routing_fallback text DEFAULT ''::text NOT NULL,
    routing_persist_active boolean DEFAULT false NOT NULL,
    fallback_group_id bigint,
    CONSTRAINT routing_settings_singleton_check CHECK (singleton)
);

COMMENT ON COLUMN public.routing_settings.routing_persist_active IS 'Whether the database''s routers count; until then the configuration file''s do.';

CREATE TABLE public.security_settings (
    singleton boolean DEFAULT true NOT NULL,
    config jsonb DEFAULT '{}'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT security_settings_singleton_check CHECK (singleton)
);

COMMENT ON COLUMN public.security_settings.config IS 'Empty: the configuration file''s auth and authorization count.';

CREATE TABLE public.sweep_locks (
    name text NOT NULL,
    token text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE public.sweep_locks IS 'Which sweeps are under way, or were done so lately that they are not due.';

COMMENT ON COLUMN public.sweep_locks.token IS 'Who holds it; empty once it is done.';

CREATE TABLE public.user_scripts (
    id bigint NOT NULL,
    name text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT user_scripts_kind_check CHECK ((kind = ANY (ARRAY['translation_fixup'::text, 'routing'::text, 'guard'::text])))
);

CREATE SEQUENCE public.user_scripts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.user_scripts_id_seq OWNED BY public.user_scripts.id;

CREATE TABLE public.worker_registry (
    instance_id text NOT NULL,
    worker_name text NOT NULL,
    advertise_address text,
    version text DEFAULT ''::text NOT NULL,
    active_revision text,
    heartbeat_interval_secs double precision DEFAULT 10 NOT NULL,
    registered_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    status jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT worker_registry_heartbeat_interval_secs_check CHECK ((heartbeat_interval_secs > (0)::double precision))
);

COMMENT ON COLUMN public.worker_registry.worker_name IS 'The same after a restart; the instance id is not.';

ALTER TABLE ONLY public.cluster_configs ALTER COLUMN id SET DEFAULT nextval('public.cluster_configs_id_seq'::regclass);

ALTER TABLE ONLY public.cluster_group_configs ALTER COLUMN id SET DEFAULT nextval('public.cluster_group_configs_id_seq'::regclass);

ALTER TABLE ONLY public.cluster_snapshots ALTER COLUMN id SET DEFAULT nextval('public.cluster_snapshots_id_seq'::regclass);

ALTER TABLE ONLY public.query_records ALTER COLUMN id SET DEFAULT nextval('public.query_records_id_seq'::regclass);

ALTER TABLE ONLY public.routing_rules ALTER COLUMN id SET DEFAULT nextval('public.routing_rules_id_seq'::regclass);

ALTER TABLE ONLY public.user_scripts ALTER COLUMN id SET DEFAULT nextval('public.user_scripts_id_seq'::regclass);

ALTER TABLE ONLY public.cache_entries
    ADD CONSTRAINT cache_entries_pkey PRIMARY KEY (cache_key);

ALTER TABLE ONLY public.cluster_capacity_counters
    ADD CONSTRAINT cluster_capacity_counters_pkey PRIMARY KEY (cluster_name);

ALTER TABLE ONLY public.cluster_capacity_leases
    ADD CONSTRAINT cluster_capacity_leases_pkey PRIMARY KEY (query_id);

ALTER TABLE ONLY public.cluster_capacity_waiters
    ADD CONSTRAINT cluster_capacity_waiters_pkey PRIMARY KEY (cluster_name, instance_id);

ALTER TABLE ONLY public.cluster_configs
    ADD CONSTRAINT cluster_configs_name_key UNIQUE (name);

ALTER TABLE ONLY public.cluster_configs
    ADD CONSTRAINT cluster_configs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.cluster_group_configs
    ADD CONSTRAINT cluster_group_configs_name_key UNIQUE (name);

ALTER TABLE ONLY public.cluster_group_configs
    ADD CONSTRAINT cluster_group_configs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.cluster_snapshots
    ADD CONSTRAINT cluster_snapshots_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.config_revision
    ADD CONSTRAINT config_revision_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.executing_queries
    ADD CONSTRAINT executing_queries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.guardrails
    ADD CONSTRAINT guardrails_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY public.proxy_settings
    ADD CONSTRAINT proxy_settings_pkey PRIMARY KEY (key);

ALTER TABLE ONLY public.query_digest_stats
    ADD CONSTRAINT query_digest_stats_pkey PRIMARY KEY (query_parameterized_hash);

ALTER TABLE ONLY public.query_records
    ADD CONSTRAINT query_records_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.queryflux_meta
    ADD CONSTRAINT queryflux_meta_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY public.queryflux_migrations
    ADD CONSTRAINT queryflux_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.queued_queries
    ADD CONSTRAINT queued_queries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.routing_rules
    ADD CONSTRAINT routing_rules_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.routing_settings
    ADD CONSTRAINT routing_settings_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY public.security_settings
    ADD CONSTRAINT security_settings_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY public.sweep_locks
    ADD CONSTRAINT sweep_locks_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.user_scripts
    ADD CONSTRAINT user_scripts_name_key UNIQUE (name);

ALTER TABLE ONLY public.user_scripts
    ADD CONSTRAINT user_scripts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.worker_registry
    ADD CONSTRAINT worker_registry_pkey PRIMARY KEY (instance_id);

CREATE INDEX cache_entries_expires_at ON public.cache_entries USING btree (expires_at);

CREATE INDEX cache_entries_group_name ON public.cache_entries USING btree (group_name);

CREATE INDEX cluster_snapshots_group ON public.cluster_snapshots USING btree (group_name, recorded_at DESC);

CREATE INDEX cluster_snapshots_recorded_at ON public.cluster_snapshots USING btree (recorded_at DESC);

CREATE INDEX executing_queries_created_at ON public.executing_queries USING btree (created_at);

CREATE UNIQUE INDEX executing_queries_proxy_query_id ON public.executing_queries USING btree (proxy_query_id);

CREATE INDEX query_digest_stats_last_seen ON public.query_digest_stats USING btree (last_seen DESC);

CREATE INDEX query_records_agent ON public.query_records USING btree (agent_id, created_at DESC) WHERE (agent_id IS NOT NULL);

CREATE INDEX query_records_backend_query_id ON public.query_records USING btree (backend_query_id) WHERE (backend_query_id IS NOT NULL);

CREATE INDEX query_records_cluster_id ON public.query_records USING btree (cluster_id, created_at DESC);

CREATE INDEX query_records_conversation ON public.query_records USING btree (conversation_id, step_index) WHERE (conversation_id IS NOT NULL);

CREATE INDEX query_records_created_at ON public.query_records USING btree (created_at DESC);

CREATE INDEX query_records_group ON public.query_records USING btree (cluster_group, created_at DESC);

CREATE INDEX query_records_group_id ON public.query_records USING btree (cluster_group_id, created_at DESC);

CREATE INDEX query_records_parameterized_hash ON public.query_records USING btree (query_parameterized_hash, created_at DESC) WHERE (query_parameterized_hash IS NOT NULL);

CREATE UNIQUE INDEX query_records_proxy_query_id ON public.query_records USING btree (proxy_query_id);

CREATE INDEX query_records_status ON public.query_records USING btree (status, created_at DESC);

CREATE INDEX query_records_worker ON public.query_records USING btree (worker, created_at DESC) WHERE (worker IS NOT NULL);

CREATE INDEX queued_queries_claimed ON public.queued_queries USING btree (claimed_at) WHERE (claimed_at IS NOT NULL);

CREATE INDEX queued_queries_created_at ON public.queued_queries USING btree (created_at);

CREATE INDEX queued_queries_group ON public.queued_queries USING btree (cluster_group, last_accessed);

CREATE INDEX queued_queries_unclaimed ON public.queued_queries USING btree (created_at) WHERE (claimed_at IS NULL);

CREATE INDEX routing_rules_sort_order ON public.routing_rules USING btree (sort_order);

CREATE INDEX routing_rules_target_group_id ON public.routing_rules USING btree (target_group_id);

CREATE INDEX user_scripts_kind ON public.user_scripts USING btree (kind);

CREATE INDEX worker_registry_last_seen_at ON public.worker_registry USING btree (last_seen_at);

CREATE INDEX worker_registry_worker_name ON public.worker_registry USING btree (worker_name);

CREATE TRIGGER cluster_capacity_leases_deleted AFTER DELETE ON public.cluster_capacity_leases REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.queryflux_capacity_leases_deleted();

CREATE TRIGGER cluster_capacity_leases_inserted AFTER INSERT ON public.cluster_capacity_leases REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.queryflux_capacity_leases_inserted();

CREATE TRIGGER cluster_capacity_leases_updated AFTER UPDATE ON public.cluster_capacity_leases REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.queryflux_capacity_leases_updated();

CREATE TRIGGER config_revision_changed AFTER UPDATE ON public.config_revision FOR EACH ROW EXECUTE FUNCTION public.queryflux_notify_config_revision();

ALTER TABLE ONLY public.query_records
    ADD CONSTRAINT query_records_cluster_group_id_fkey FOREIGN KEY (cluster_group_id) REFERENCES public.cluster_group_configs(id) ON DELETE SET NULL;

ALTER TABLE ONLY public.query_records
    ADD CONSTRAINT query_records_cluster_id_fkey FOREIGN KEY (cluster_id) REFERENCES public.cluster_configs(id) ON DELETE SET NULL;

ALTER TABLE ONLY public.routing_rules
    ADD CONSTRAINT routing_rules_target_group_id_fkey FOREIGN KEY (target_group_id) REFERENCES public.cluster_group_configs(id) ON DELETE RESTRICT;

ALTER TABLE ONLY public.routing_settings
    ADD CONSTRAINT routing_settings_fallback_group_id_fkey FOREIGN KEY (fallback_group_id) REFERENCES public.cluster_group_configs(id) ON DELETE SET NULL;
