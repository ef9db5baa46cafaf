-- lowest compatible version: 20
-- A count of the leases of each cluster, kept exact by triggers for whoever writes lease rows, and one call that
-- takes a lease.
--
-- Order of locks, the same for everybody: the cluster's advisory lock (who counts and inserts), lease rows, then
-- counter rows in order of cluster name.

ALTER TABLE cluster_capacity_counters
    ADD COLUMN leased bigint NOT NULL DEFAULT 0 CHECK (leased >= 0),
    ADD COLUMN drift_seen bigint NOT NULL DEFAULT 0,
    SET (fillfactor = 40);
COMMENT ON COLUMN cluster_capacity_counters.leased IS 'Rows of cluster_capacity_leases; what admission compares.';
COMMENT ON COLUMN cluster_capacity_counters.drift_seen IS
    'By how much the last sweep found leased above the lease rows.';

-- Writers wait here until the triggers are in place; those under way end first.
LOCK TABLE cluster_capacity_leases IN SHARE ROW EXCLUSIVE MODE;

CREATE FUNCTION queryflux_capacity_lock(p_cluster text) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_advisory_xact_lock(hashtextextended('queryflux:capacity:' || p_cluster, 0))
$$;
COMMENT ON FUNCTION queryflux_capacity_lock IS
    'The lock under which leases of a cluster are counted and inserted, until the end of the transaction.';

CREATE FUNCTION queryflux_capacity_require_read_committed() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'leases are counted in READ COMMITTED only, this transaction is %',
                upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state',
                  HINT = 'Under another isolation a count under the lock may not see what was committed before it.';
    END IF;
END
$$;

-- A counter row that is missing is made by counting: whoever makes it holds the row, and what others have not yet
-- committed they add themselves, after us.
CREATE FUNCTION queryflux_capacity_adjust(p_cluster text, p_change bigint) RETURNS void LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION queryflux_capacity_adjust IS 'For the triggers: the leases of a cluster changed by so many.';

CREATE FUNCTION queryflux_capacity_leases_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN SELECT cluster_name, count(*) AS rows FROM new_rows GROUP BY 1 ORDER BY 1 LOOP
        PERFORM queryflux_capacity_adjust(changed.cluster_name, changed.rows);
    END LOOP;
    RETURN NULL;
END
$$;

CREATE FUNCTION queryflux_capacity_leases_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN SELECT cluster_name, count(*) AS rows FROM old_rows GROUP BY 1 ORDER BY 1 LOOP
        PERFORM queryflux_capacity_adjust(changed.cluster_name, -changed.rows);
    END LOOP;
    RETURN NULL;
END
$$;

-- A statement that leaves the clusters as they are, such as a renewal, changes no counter.
CREATE FUNCTION queryflux_capacity_leases_updated() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER cluster_capacity_leases_inserted AFTER INSERT ON cluster_capacity_leases
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION queryflux_capacity_leases_inserted();
CREATE TRIGGER cluster_capacity_leases_deleted AFTER DELETE ON cluster_capacity_leases
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION queryflux_capacity_leases_deleted();
CREATE TRIGGER cluster_capacity_leases_updated AFTER UPDATE ON cluster_capacity_leases
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION queryflux_capacity_leases_updated();

-- The first count: the table lock above keeps writers away until this is committed.
INSERT INTO cluster_capacity_counters (cluster_name, leased)
    SELECT cluster_name, count(*) FROM cluster_capacity_leases GROUP BY 1 ORDER BY 1
    ON CONFLICT (cluster_name) DO UPDATE SET leased = excluded.leased;

CREATE FUNCTION queryflux_capacity_recount(p_cluster text) RETURNS bigint LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION queryflux_capacity_recount IS
    'Sets a counter to its lease rows, under both locks, and gives the count.';

CREATE FUNCTION queryflux_capacity_try_acquire(p_cluster text, p_instance text, p_query_id text, p_max bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken bigint;
    same boolean;
BEGIN
    PERFORM queryflux_capacity_require_read_committed();
    IF current_setting('synchronous_commit') = 'off' THEN
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
        RETURN same;
    END IF;
    IF taken >= p_max THEN
        RETURN false;
    END IF;
    INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id, acquired_at, heartbeat_at)
        VALUES (p_query_id, p_cluster, p_instance, clock_timestamp(), clock_timestamp())
        ON CONFLICT (query_id) DO NOTHING;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION queryflux_capacity_try_acquire IS
    'Takes a lease if fewer than p_max are out. True also when this process holds it already; false while another '
    'process, or another cluster, holds a lease of this query id.';
