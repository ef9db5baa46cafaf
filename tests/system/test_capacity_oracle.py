"""One cap for a fleet of real processes, whatever happens (tests/chaos): the run of every build, and what
shows that it would notice.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.chaos import capacity
from tests.chaos.faults import KINDS

ROOT = Path(__file__).parents[2]

SECONDS = 100
SEED = 4

COUNTS_BEFORE_THE_LOCK = """
CREATE OR REPLACE FUNCTION queryflux_capacity_try_acquire(
    p_cluster text, p_instance text, p_query_id text, p_max bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
BEGIN
    SELECT count(*) INTO taken FROM cluster_capacity_leases WHERE cluster_name = p_cluster;
    PERFORM queryflux_capacity_lock(p_cluster);
    IF taken >= p_max THEN
        RETURN false;
    END IF;
    INSERT INTO cluster_capacity_leases VALUES (p_query_id, p_cluster, p_instance) ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
CREATE OR REPLACE FUNCTION queryflux_capacity_try_acquire_many(
    p_cluster text, p_instance text, p_query_ids text[], p_limits bigint[], p_released text[])
RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
    granted boolean[];
BEGIN
    SELECT count(*) INTO taken FROM cluster_capacity_leases WHERE cluster_name = p_cluster;
    PERFORM queryflux_capacity_lock(p_cluster);
    DELETE FROM cluster_capacity_leases WHERE query_id = ANY (p_released) AND instance_id = p_instance;
    FOR place IN 1 .. cardinality(p_query_ids) LOOP
        granted[place] := taken < p_limits[place];
        IF granted[place] THEN
            INSERT INTO cluster_capacity_leases VALUES (p_query_ids[place], p_cluster, p_instance)
                ON CONFLICT DO NOTHING;
            taken := taken + 1;
        END IF;
    END LOOP;
    RETURN granted;
END
$$
"""


def test_one_cap_for_four_processes_and_an_older_one() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "capacity",
        "--seconds",
        str(SECONDS),
        "--seed",
        str(SEED),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS + 100)
    assert run.returncode == 0, run.stdout + run.stderr
    line = run.stdout
    figures = dict(re.findall(r"([\w/]+)=(\d+)", line))
    assert int(figures["grants"]) > 10_000, line
    assert figures["unexplained"] == "0"
    assert figures["deadlocks"] == "0"
    assert line.endswith(" ok\n")
    assert set(KINDS) <= set(figures), "not every kind of fault was made"
    for name, count, cap in re.findall(r"(\w+):(\d+)/(\d+)", line):
        assert capacity.CAPS[name] <= int(count) <= int(cap), line


def test_the_oracle_notices_a_count_outside_the_lock() -> None:
    with capacity.capacity_database() as database:
        database.rows(COUNTS_BEFORE_THE_LOCK)
        outcome = capacity.run_on(database, 15, SEED, kinds=())
    assert any("queries run on" in violation for violation in outcome.violations), outcome.line()
