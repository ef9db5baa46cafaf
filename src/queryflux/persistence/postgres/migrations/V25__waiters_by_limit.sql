-- lowest compatible version: 20
-- A place is left for whoever waits longest among those that could take it: groups of one cluster have limits of
-- their own, and who was refused at a lower one than what is taken waits for something else. And counters of
-- clusters that are no more go.
--
-- What processes call has the same parameters as before. Calls of before that are under way find what they use:
-- the column and the new parameters have defaults. In plpgsql, these keep their plans from call to call.

ALTER TABLE cluster_capacity_waiters ADD COLUMN refused_at bigint NOT NULL DEFAULT 9223372036854775807;
COMMENT ON COLUMN cluster_capacity_waiters.refused_at IS
    'The highest limit at which it was refused of late; the row is about that one.';

DROP FUNCTION queryflux_capacity_ahead(text, text);
CREATE FUNCTION queryflux_capacity_ahead(p_cluster text, p_instance text, p_taken bigint DEFAULT 0)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
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
COMMENT ON FUNCTION queryflux_capacity_ahead IS
    'How many other processes a place each is left for, where so many are taken.';

-- A lower limit takes the row over when nobody has asked at the higher one for so long that it does not count.
DROP FUNCTION queryflux_capacity_waits(text, text, boolean);
CREATE FUNCTION queryflux_capacity_waits(
    p_cluster text, p_instance text, p_gained boolean, p_limit bigint DEFAULT 9223372036854775807)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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

CREATE OR REPLACE FUNCTION queryflux_capacity_served(p_cluster text, p_instance text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM cluster_capacity_waiters WHERE cluster_name = p_cluster AND instance_id = p_instance;
END
$$;

CREATE OR REPLACE FUNCTION queryflux_capacity_try_acquire(
    p_cluster text, p_instance text, p_query_id text, p_max bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
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

CREATE OR REPLACE FUNCTION queryflux_capacity_try_acquire_many(
    p_cluster text, p_instance text, p_query_ids text[], p_limits bigint[], p_released text[])
RETURNS boolean[] LANGUAGE plpgsql VOLATILE
-- Planning for each call anew costs as much as ten leases; a plan made while the table was tiny must not read all of it.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
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

-- A counter that is missing is made by counting, by whoever changes it or compares with it; so one that says 0 may go
-- at any time. One that somebody has locked is about to say something else, and stays.
CREATE OR REPLACE FUNCTION queryflux_capacity_expire(p_older_than interval) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
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
$$;
COMMENT ON FUNCTION queryflux_capacity_expire IS
    'Ends leases that were not renewed for so long by this database''s clock; how many. Counters of clusters that '
    'are not configured go when nothing is leased there.';
