-- lowest compatible version: 20
-- Leases for a group of waiting queries by one call, turns between processes, drift that is settled over two
-- sweeps, and locks of sweeps.
--
-- Only the lease table is locked here: who takes a lease looks at counters first and at leases then, and a writer of
-- lease rows the other way round, so a migration that locked both would deadlock with one of them.

-- The table is no longer than queries run, and nothing on their path looks for leases but by query id: counting,
-- expiry and the end of a process can read all of it. Each of these indexes cost every lease more than its trigger.
DROP INDEX cluster_capacity_leases_cluster_name;
DROP INDEX cluster_capacity_leases_heartbeat_at;
DROP INDEX cluster_capacity_leases_instance_cluster;
-- Dead rows come as fast as leases do.
ALTER TABLE cluster_capacity_leases SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Processes take turns. One that was refused says so here; once it has waited for a second, the others leave it a
-- place, in the order in which they began to wait. Otherwise whoever releases and takes in one call kept all for ever.
CREATE UNLOGGED TABLE cluster_capacity_waiters (
    cluster_name text,
    instance_id text,
    since timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (cluster_name, instance_id)
);
COMMENT ON TABLE cluster_capacity_waiters IS 'Processes that were refused a lease and keep asking.';
COMMENT ON COLUMN cluster_capacity_waiters.since IS 'When it was first refused, or last had one place more.';
COMMENT ON COLUMN cluster_capacity_waiters.seen_at IS 'When it last asked; one that stopped asking does not count.';

CREATE FUNCTION queryflux_capacity_ahead(p_cluster text, p_instance text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT count(*)
    FROM cluster_capacity_waiters AS other
        LEFT JOIN cluster_capacity_waiters AS own
            ON own.cluster_name = p_cluster AND own.instance_id = p_instance
    WHERE other.cluster_name = p_cluster AND other.instance_id <> p_instance
        AND other.seen_at > clock_timestamp() - interval '1.5 seconds'
        AND other.since < least(clock_timestamp() - interval '1 second', own.since)
$$;
COMMENT ON FUNCTION queryflux_capacity_ahead IS 'How many other processes a place each is left for.';

CREATE FUNCTION queryflux_capacity_waits(p_cluster text, p_instance text, p_gained boolean) RETURNS void
LANGUAGE sql VOLATILE AS $$
    INSERT INTO cluster_capacity_waiters AS own VALUES (p_cluster, p_instance, clock_timestamp(), clock_timestamp())
    ON CONFLICT (cluster_name, instance_id) DO UPDATE
        SET seen_at = excluded.seen_at,
            since = CASE WHEN p_gained OR own.seen_at < excluded.seen_at - interval '1.5 seconds'
                         THEN excluded.since ELSE own.since END
$$;

CREATE FUNCTION queryflux_capacity_served(p_cluster text, p_instance text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    DELETE FROM cluster_capacity_waiters WHERE cluster_name = p_cluster AND instance_id = p_instance
$$;

CREATE OR REPLACE FUNCTION queryflux_capacity_try_acquire(
    p_cluster text, p_instance text, p_query_id text, p_max bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken bigint;
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
        taken := taken + queryflux_capacity_ahead(p_cluster, p_instance);
    END IF;
    IF taken >= p_max THEN
        PERFORM queryflux_capacity_waits(p_cluster, p_instance, false);
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

CREATE FUNCTION queryflux_capacity_try_acquire_many(
    p_cluster text, p_instance text, p_query_ids text[], p_limits bigint[], p_released text[])
RETURNS boolean[] LANGUAGE plpgsql VOLATILE
-- Planning for each call anew costs as much as ten leases; a plan made while the table was tiny must not read all of it.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    asked CONSTANT int := cardinality(p_query_ids);
    taken bigint;
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
            taken := taken + queryflux_capacity_ahead(p_cluster, p_instance);
        END IF;
        SELECT array_agg(query_id),
               array_agg(query_id) FILTER (WHERE cluster_name = p_cluster AND instance_id = p_instance)
            INTO known, mine
            FROM cluster_capacity_leases WHERE query_id = ANY (p_query_ids);
        IF mine IS NOT NULL THEN
            SELECT array_agg(query_id) INTO mine FROM queryflux_capacity_renew(p_instance, mine) AS query_id;
        END IF;
        IF known IS NULL AND plain THEN
            -- As nearly always: nobody has any of them, and one limit holds for all.
            fresh := p_query_ids[1 : least(greatest(p_limits[1] - taken, 0), asked)];
            granted := array_fill(true, ARRAY[cardinality(fresh)])
                || array_fill(false, ARRAY[asked - cardinality(fresh)]);
        ELSE
            fresh := '{}';
            FOR place IN 1 .. asked LOOP
                granted[place] := p_query_ids[place] = ANY (fresh)
                    OR coalesce(p_query_ids[place] = ANY (mine), false);
                IF taken < p_limits[place] AND NOT granted[place]
                    AND (known IS NULL OR p_query_ids[place] <> ALL (known))
                THEN
                    granted[place] := true;
                    fresh := fresh || p_query_ids[place];
                    taken := taken + 1;
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
    IF false = ANY (granted) THEN
        PERFORM queryflux_capacity_waits(p_cluster, p_instance, inserted > given);
    ELSIF queue THEN
        PERFORM queryflux_capacity_served(p_cluster, p_instance);
    END IF;
    RETURN granted;
END
$$;
COMMENT ON FUNCTION queryflux_capacity_try_acquire_many IS
    'Releases p_released of this process on this cluster, then takes a lease for each of p_query_ids, in their order, '
    'as long as fewer than its own limit are out.';

-- A lease row is never waited for while another is held (SKIP LOCKED), so no two of these statements deadlock.
CREATE FUNCTION queryflux_capacity_renew(p_instance text, p_query_ids text[])
RETURNS SETOF text LANGUAGE sql VOLATILE AS $$
    WITH held AS MATERIALIZED (
        SELECT query_id FROM cluster_capacity_leases
        WHERE instance_id = p_instance AND query_id = ANY (p_query_ids)
        FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE cluster_capacity_leases AS lease SET heartbeat_at = clock_timestamp()
        FROM held WHERE lease.query_id = held.query_id
        RETURNING lease.query_id
$$;
COMMENT ON FUNCTION queryflux_capacity_renew IS
    'Renews what this process names and still holds, and gives it. A row that somebody has locked is left out.';

CREATE FUNCTION queryflux_capacity_expire(p_older_than interval) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    WITH stale AS MATERIALIZED (
        SELECT query_id FROM cluster_capacity_leases
        WHERE heartbeat_at < now() - p_older_than
        FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM cluster_capacity_leases AS lease USING stale
            WHERE lease.query_id = stale.query_id RETURNING 1)
    SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION queryflux_capacity_expire IS
    'Ends leases that were not renewed for so long by this database''s clock; how many.';

-- A counter below its rows would let too many in: it is raised at once. One above them is lowered when two sweeps
-- in a row find the same difference: by then whoever lost lease rows has taken them again.
CREATE FUNCTION queryflux_capacity_settle(p_cluster text, OUT was bigint, OUT became bigint)
LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION queryflux_capacity_settle IS 'What a sweep does about a counter that differs from its lease rows.';

CREATE FUNCTION queryflux_capacity_publish_running(p_cluster text, p_running bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queryflux_capacity_adjust(p_cluster, 0);
    UPDATE cluster_capacity_counters SET running = p_running WHERE cluster_name = p_cluster;
END
$$;

CREATE TABLE sweep_locks (
    name text PRIMARY KEY,
    token text NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE sweep_locks IS 'Which sweeps are under way, or were done so lately that they are not due.';
COMMENT ON COLUMN sweep_locks.token IS 'Who holds it; empty once it is done.';
