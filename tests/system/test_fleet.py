"""A real fleet under load, through everything that happens to one.

PostgreSQL, two control planes behind HAProxy, four workers and, later, a fifth; clients of all four doors
that never stop asking. The engine counts what runs there and remembers what it finished, so nothing that the
fleet says of itself has to be believed: the cap, what ran twice or for nobody, and history are held against
it.
"""

import gc
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit import doors, fleet, load
from tests.kit.calling import WorkerCaller
from tests.kit.doors import HOST
from tests.kit.fleet import FLUSH_SECS, NEW, OLD, Fleet, Worker
from tests.kit.load import DRIVERS, Load, Outcome
from tests.kit.working import get

pytest.importorskip("duckdb", reason="DuckDB is not installed")
pytest.importorskip("adbc_driver_flightsql.dbapi", reason="no ADBC Flight SQL driver")

CAP = 6
LOWERED = 3
SECONDS_AWAY = 10
"""So long PostgreSQL is stopped; a minute with --full."""
LONGEST_WORK = 0.25
SHUTTING_DOWN = {
    "trinoHttp": {"SERVER_SHUTTING_DOWN", "Http503Error", "TrinoConnectionError"},
    "postgresWire": {"57P01", "57P03", "none", ""},
    "mysqlWire": {"1053", "2003", "2006", "2013"},
    "flightSql": {"Unavailable"},
}
"""What a client may hear of a worker that ends in good order: that it does, or that it is not there."""
BCRYPT = "$2b$04$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
BUMP = "UPDATE config_revision SET revision = revision + 1"
MARK = "substring(sql_text from 'q([0-9]{6})')::int"


class Scenario:
    """The fleet, its clients, and what is to be held against them at the end."""

    def __init__(self, run: Fleet, clients: Load, away: float) -> None:
        self.fleet = run
        self.load = clients
        self.away = away
        self.lowered: list[tuple[float, float]] = []
        """When every worker was known to go by the lowered cap (Unix time)."""
        self.killed: Worker | None = None
        self.killed_waiting = 0
        """Records that the killed worker still had to send, a moment before."""
        self.scraped_at = 0.0
        self.stopped: tuple[float, float] = (0.0, 0.0)
        """When PostgreSQL was away (Unix time)."""
        self.figures: dict[str, Any] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What clients see in it is remembered under this name."""
        self.load.phase = name
        began = time.monotonic()
        yield
        self.figures[name] = f"{time.monotonic() - began:.1f} s"

    def goes_on(self, kind: str, since: float, at_least: int = 5, seconds: float = 30) -> None:
        """So many queries of a kind were answered after a moment."""
        self.fleet.until(lambda: len(self.load.answered(kind, since)) >= at_least, seconds)

    def use_cap(self, cap: int) -> None:
        """Edit the cap, and wait until every worker goes by it."""
        self.fleet.operator("PATCH", "/admin/config/groups/counted", {"maxRunningQueries": cap})
        took = self.fleet.until(self.fleet.all_current, 15)
        self.figures["slowest edit"] = max(took, self.figures.get("slowest edit", 0.0))


# ADBC cannot close the cursor of a result that was cut off, nor then its connection, and complains of it when
# they are collected.
@pytest.mark.filterwarnings(
    r"ignore:.*function (Cursor|Connection).__del__:pytest.PytestUnraisableExceptionWarning"
)
def test_a_fleet_under_load_through_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    away = 60 if pytestconfig.getoption("--full") else SECONDS_AWAY
    monkeypatch.setattr(doors, "TIMEOUT", 60.0 + 2 * away)  # longer than any query may wait
    began = time.monotonic()
    with fleet.fleet(tmp_path, cap=CAP, wait_secs=40 + 2 * away, expiry_secs=away + 6) as run:
        run.start_planes()
        run.start_workers("w1", "w2", "w3", "w4")
        with load.load(lambda: list(run.workers), seed=5) as clients:
            scenario = Scenario(run, clients, away)
            clients.start(["work", "work", "work", "lines"], 2)
            clients.start(["free"], 1)
            for step in STEPS:
                with scenario.phase(step.__name__):
                    step(scenario)
        gc.collect()
        check_cap(scenario)
        check_answers(scenario)
        check_records(scenario)
    print({**clients.figures(), **scenario.figures, "in all": f"{time.monotonic() - began:.0f} s"})


# What happens.


def edits(it: Scenario) -> None:
    """Each is in use everywhere within seconds, and no query notices."""
    run = it.fleet
    it.goes_on("work", time.monotonic(), 20)
    for turn in range(3):
        name = f"/admin/config/clusters/extra{turn}"
        it.use_cap(LOWERED)
        # What was admitted before ends meanwhile, however long that takes to reach the engine.
        run.until(lambda: sum(run.database.leases().values()) <= LOWERED)
        settled = time.time() + 0.5
        run.operator("PUT", name, {"engineKey": "duckDb"})
        time.sleep(1.5)
        it.lowered.append((settled, time.time()))
        it.use_cap(CAP)
        run.operator("DELETE", name)
    run.until(run.all_current)


def bad_edits(it: Scenario) -> None:
    """A bad row stays at the control planes. What only workers cannot use, all of them refuse, and say so."""
    run = it.fleet
    published = run.operator("GET", "/admin/workers")["revision"]
    run.database.rows("INSERT INTO cluster_configs (name, engine_key) VALUES ('bad', 'trino')")
    run.database.rows(BUMP)

    def failures() -> list[str]:
        return [status["failure"] or "" for status in run.ask_planes("/admin/config/status")]

    run.until(lambda: all("clusters.bad" in failure for failure in failures()))
    assert run.operator("GET", "/admin/workers")["revision"] == published
    assert {worker.status["activeRevision"] for worker in run.workers} == {published}
    assert "clusters.bad" in run.command("status")
    run.database.rows("DELETE FROM cluster_configs WHERE name = 'bad'")
    run.database.rows(BUMP)
    run.until(lambda: not any(failures()))

    # Control planes have no PostgreSQL door, so they cannot know that a worker's needs more than a hash.
    users = {"provider": "static", "staticUsers": {"users": {"ann": {"password": BCRYPT}}}}
    run.operator("PUT", "/admin/config/settings/auth", users)
    run.until(lambda: all(map(refused_by_all, run.ask_planes("/admin/workers"))))
    refused = run.operator("GET", "/admin/workers")
    for row in refused["workers"]:
        assert row["rejectedRevision"] == refused["revision"] != published
        assert row["activeRevision"] == published
        assert row["notCurrent"].startswith("refused: auth.staticUsers.users.ann.password: a bcrypt hash")
    said = run.command("status")
    for worker in run.workers:
        assert f"warning: {worker.name}: refused: auth.staticUsers.users.ann.password" in said
    assert BCRYPT not in said
    since = time.monotonic()
    for kind in ("work", "free"):
        it.goes_on(kind, since)
    run.operator("PUT", "/admin/config/settings/auth", {"provider": "none"})
    run.until(run.all_current)


def refused_by_all(answer: dict[str, Any]) -> bool:
    """By what one control plane says: it may hear of a worker's refusal before it has the edit itself."""
    return all(row["rejectedRevision"] == answer["revision"] for row in answer["workers"])


def kill_a_worker(it: Scenario) -> None:
    """Its clients lose what it ran; others do not notice. Its leases run out by themselves."""
    run = it.fleet
    it.killed = worker = run.worker("w4")
    run.until(lambda: worker.status["coordination"]["slotsHeld"] > 0)
    it.scraped_at = time.monotonic()
    it.killed_waiting = int(worker.process.metrics()["queryflux_history_records_waiting"])
    run.signal_worker(worker, signal.SIGKILL)
    worker.process.wait()
    it.goes_on("work", time.monotonic(), 20)


def kill_a_control_plane(it: Scenario) -> None:
    """The other one does everything."""
    run = it.fleet
    run.end_plane("cp1", signal.SIGKILL)
    since = time.monotonic()
    for kind in ("work", "free"):
        it.goes_on(kind, since, 10)
    it.use_cap(CAP - 1)
    it.use_cap(CAP)


def no_control_plane(it: Scenario) -> None:
    """A worker starts from another one; queries without a limit go on, those with one wait."""
    run = it.fleet
    revision = run.operator("GET", "/admin/workers")["revision"]
    run.end_plane("cp2", signal.SIGKILL)
    since = time.monotonic()
    worker = run.start_worker("w4")
    status = worker.status
    assert (status["configSource"], status["stale"]) == ("peer", True)
    assert status["activeRevision"] == revision
    run.until(lambda: any(one.server is worker for one in it.load.answered("free", since)))
    it.goes_on("free", since, 10)
    run.start_planes()
    began = time.monotonic()
    it.goes_on("work", began, 1)
    it.figures["limited again after an outage"] = f"{time.monotonic() - began:.1f} s"
    worker.until(lambda status: not status["stale"] and status["configSource"] == "controlPlane")
    run.until(run.all_current)


def postgres_stopped(it: Scenario) -> None:
    """What runs finishes; what has no limit goes on; the rest waits. Configuration is still given."""
    run = it.fleet
    revision = run.operator("GET", "/admin/workers")["revision"]
    it.goes_on("work", time.monotonic(), 5)
    running = [Long(it, number, it.away / 2 + number) for number in range(3)]
    run.until(lambda: all(one.runs() for one in running))
    run.store.stop()
    stopped, since = time.monotonic(), time.time()
    caller = WorkerCaller(run.balancer, OLD)
    assert caller.snapshot().revision == revision
    fifth = run.start_worker("w5")
    assert fifth.status["configSource"] == "controlPlane"
    assert fifth.status["activeRevision"] == revision
    run.until(lambda: any(one.server is fifth for one in it.load.answered("free", stopped)))
    time.sleep(max(0.0, stopped + it.away - time.monotonic()))
    for one in running:
        one.finished()
    assert len(it.load.answered("free", stopped)) > it.away
    assert caller.snapshot().revision == revision
    assert "cannot be listed" in run.command("status")
    it.stopped = (since, time.time())
    run.store.start()
    up = time.monotonic()
    it.goes_on("work", up, 1, 20)
    it.figures["limited again after PostgreSQL"] = f"{time.monotonic() - up:.1f} s"
    assert time.monotonic() - up < 5
    it.goes_on("work", up, 20)
    assert any(one.began < up - it.away / 2 for one in it.load.answered("work", up)), "nobody has waited"
    run.until(run.all_current)


def another_secret(it: Scenario) -> None:
    """Control planes take both, then workers use the new one, then the old one is gone."""
    run, killed = it.fleet, it.killed
    move_planes(run, OLD, NEW)
    run.secret = NEW
    for worker in list(run.workers):
        run.signal_worker(worker, signal.SIGTERM)
        assert worker.process.wait(40) == 0, "".join(worker.process.lines)
        run.start_worker(worker.name)
    run.until(run.all_current)
    move_planes(run, NEW)
    late = run.new_worker("w9", OLD)
    late.until(lambda status: "(401)" in (status["sync"]["error"] or ""))
    ready = get(f"http://{HOST}:{late.port('operator port')}/readyz")
    assert (ready.status, "the shared secret is refused (401)" in ready.json["reason"]) == (503, True)
    lines = [line for plane in run.planes.values() for line in plane.lines]
    assert any("a call to the worker API came without a right secret" in line for line in lines)
    assert all(secret not in line for line in [*lines, *late.process.lines] for secret in (OLD, NEW))
    late.signal(signal.SIGTERM)
    assert late.process.wait(20) == 0
    since = time.monotonic()
    for kind in ("work", "free"):
        it.goes_on(kind, since)
    run.until(run.all_current)
    assert killed is not None
    sql = "SELECT count(*) FROM cluster_capacity_leases WHERE instance_id = %s"
    assert run.database.rows(sql, killed.instance) == [(0,)], "they have run out"

    def told() -> list[bool]:
        rows = run.operator("GET", "/admin/workers?all=true")["workers"]
        return [row["online"] for row in rows if row["instanceId"] == killed.instance]

    run.until(lambda: told() == [False])


def move_planes(run: Fleet, *secrets: str) -> None:
    """Start control planes again, one after the other, with these secrets."""
    for name in run.plane_ports:
        assert run.end_plane(name, signal.SIGTERM) == 0
        run.start_plane(name, *secrets)
        time.sleep(0.5)  # until the balancer has seen it


def everything_ends(it: Scenario) -> None:
    """SIGTERM to all workers and a control plane under load; to the other one when they have gone."""
    run = it.fleet
    it.goes_on("work", time.monotonic(), 10)
    workers, run.workers = run.workers, []
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert run.end_plane("cp1", signal.SIGTERM) == 0
    for worker in workers:
        assert worker.process.wait(60) == 0, "".join(worker.process.lines)
    it.load.stop(30)
    assert run.database.leases() == {}
    assert run.database.counters() == {}
    assert run.end_plane("cp2", signal.SIGTERM) == 0
    with run.engine.admin() as engine:
        sql = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = {load.RUNNING_KEY}"
        assert engine.execute(sql.encode()).fetchone() == (0,)


STEPS: tuple[Callable[[Scenario], None], ...] = (
    edits,
    bad_edits,
    kill_a_worker,
    kill_a_control_plane,
    no_control_plane,
    postgres_stopped,
    another_secret,
    everything_ends,
)


class Long:
    """A query with a limit that runs for some seconds."""

    def __init__(self, it: Scenario, which: int, seconds: float) -> None:
        self._it = it
        self._door = DRIVERS[which]
        self._worker = it.fleet.workers[which]
        self._seconds = seconds
        self._outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        with self._door.connect(self._worker.port(self._door.name)) as client:
            milliseconds = int(self._seconds * 1000)
            self._outcome = self._it.load.ask(client, self._door, self._worker, "work", milliseconds)

    def runs(self) -> bool:
        """The engine works for it."""
        sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~* %s"
        with self._it.fleet.engine.admin() as engine:
            found = engine.execute(sql, (rf"work\(\d+, {int(self._seconds * 1000)}\)",)).fetchone()
        return found is not None and found[0] > 0

    def finished(self) -> None:
        """It was answered, and right."""
        self._thread.join(1)
        assert self._outcome is not None
        assert self._outcome.right, self._outcome


# What must hold.


def check_answers(it: Scenario) -> None:
    """Right, or refused by a worker that was ending; what was refused in good order was never run."""
    wrong = [one for one in it.load.outcomes if one.wrong]
    assert wrong == []
    refused = [one for one in it.load.outcomes if one.code]
    unexplained = [
        one
        for one in refused
        if one.server.leaving_at is None
        or one.ended < one.server.leaving_at
        or (one.server is not it.killed and one.code not in SHUTTING_DOWN[one.door])
    ]
    assert unexplained == []
    with it.fleet.engine.admin() as engine:
        runs = Counter(number for (number,) in engine.execute("SELECT number FROM done"))
    asked = {one.number: one for one in it.load.outcomes if one.kind == "work"}
    assert {number: count for number, count in runs.items() if count > 1} == {}, "done twice"
    assert set(runs) <= set(asked)
    for number, one in asked.items():
        if one.right:
            assert runs[number] == 1, one
        elif one.server is not it.killed:
            assert runs[number] == 0, f"it was done, and its client told otherwise: {one}"


def check_cap(it: Scenario) -> None:
    """By the engine's own count."""
    with it.fleet.engine.admin() as engine:
        assert load.most_seen(engine) == CAP
        rows = engine.execute("SELECT seen, began FROM done").fetchall()
    stopped, started = it.stopped
    assert not any(stopped + 1 < began < started for _, began in rows), "nobody could grant them a place"
    lowered = [seen for seen, began in rows if any(start < began < end for start, end in it.lowered)]
    assert max(lowered) == LOWERED
    it.figures["most at a time"] = f"{CAP} of {CAP}, lowered {max(lowered)} of {LOWERED}"


def check_records(it: Scenario) -> None:
    """Finished = stored + dropped + unacknowledged at a kill; nothing twice, nothing of nobody."""
    run, killed = it.fleet, it.killed
    assert killed is not None
    assert killed.leaving_at is not None
    records = run.database.rows(
        f"SELECT {MARK}, status, error_code, cluster_name, worker, instance_id FROM query_records"
    )
    by_number = Counter(number for number, *_ in records)
    assert {number: count for number, count in by_number.items() if count > 1} == {}
    asked = {one.number: one for one in it.load.outcomes if one.number}
    for number, status, code, cluster, worker, instance in records:
        one = asked[number]
        assert (worker, instance) == (one.server.name, one.server.instance)
        if not one.right and one.server is not killed:
            assert (status, code, cluster) == ("Cancelled", "SHUTTING_DOWN", ""), one
        elif one.right:
            assert (status, code) == ("Success", None), one
    missing = [one for one in asked.values() if one.right and one.number not in by_number]
    assert [one for one in missing if one.server is not killed] == []
    between = sum(
        one.right and one.server is killed and one.ended > it.scraped_at - 0.5 for one in asked.values()
    )
    assert len(missing) <= it.killed_waiting + between
    assert all(one.ended > killed.leaving_at - FLUSH_SECS - 2 for one in missing)
    it.figures["records lost with a killed worker"] = len(missing)

    reports = run.database.rows("SELECT instance_id, status FROM worker_registry")
    uplinks = {instance: status["historyUplink"] for instance, status in reports}
    counts = Counter(instance for *_, instance in records)
    for worker in run.all:
        if worker is not killed and worker.name != "w9":
            told = uplinks[worker.instance]
            assert (told["dropped"], told["rejected"], told["waiting"]) == (0, 0, 0), (worker.name, told)
            assert told["delivered"] == counts[worker.instance], worker.name
    it.figures["records"] = len(records)
