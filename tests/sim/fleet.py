"""A fleet under faults, by seed: workers, two control planes, one database, and the network between them.

What happens is in troubles.py, what must hold in promises.py; here is who takes part, and the order of a run:
faults, then all is mended and everything converges; then one more edit arrives everywhere at once, clients
rest, and every place and every record is accounted for.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import Any

from queryflux.config.store import StoredConfig
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.model.errors import StoreUnavailable
from tests.chaos.judge import Judge
from tests.sim import promises
from tests.sim.capacity import BOUND_SECS, LINGER_SECS, Outcome
from tests.sim.controlplane import ControlPlaneProcess
from tests.sim.database import Row
from tests.sim.edits import CAPS, Edit, revision_of
from tests.sim.engines import Engines
from tests.sim.network import Host, Network, Storm
from tests.sim.promises import Path
from tests.sim.road import Line, Weather
from tests.sim.tables import FleetDatabase
from tests.sim.troubles import Troubles
from tests.sim.virtual import virtual
from tests.sim.worker import CLIENTS, CONTROL_PLANES, WorkerProcess
from tests.sim.world import World

WORKERS = ("w1", "w2", "w3")
PROBE_SECS = 0.5
FAULTS_SECS = 50.0
CONVERGE_SECS = 45.0
"""When all is mended everything is as it should be within this time."""
CALM_AFTER_SECS = 20.0
"""When all is mended so long, no lease runs out any more."""
NEWS_SECS = 3.0
"""So long an edit takes to every worker when nothing is wrong."""
END_SECS = 20.0
START_AGAIN_SECS = 1.0
FULL_SECS = 4.0


class FleetSimulation(Engines):
    """One run."""

    def __init__(
        self, seed: int, prepare: "Callable[[FleetSimulation], object]" = lambda simulation: None
    ) -> None:
        self.seed = seed
        world = World(seed)
        self.chance = world.chance
        self.tables = FleetDatabase(world)
        super().__init__(world, self.tables, Judge(CAPS, grace_secs=3))
        self.weather = Storm()
        self.roads = Weather()
        self.network = Network(world, self.weather)
        self.workers: dict[str, WorkerProcess] = {}
        self.control_planes: dict[str, ControlPlaneProcess] = {}
        self.gone: list[WorkerProcess] = []
        self.ended_well: set[str] = set()
        """Instances of workers that stopped in good order."""
        self.troubles = Troubles(self)
        self.edits: dict[str, Edit] = {}
        """What was ever stored, by revision."""
        self._lines: list[Line] = []
        self._revisions: dict[int, str] = {}
        self._said_at: dict[str, float] = {}
        self._stood: dict[tuple[str, int], dict[str, None]] = {}
        self._paths: dict[str, Path] = {}
        self._born: Counter[str] = Counter()
        self._born_at: dict[str, float] = {}
        self._calm_from = float("inf")
        self.tables.on_said = self._said
        prepare(self)

    # Who takes part.

    def witnessed(self) -> Iterable[WorkerProcess]:
        """As Engines."""
        return self.workers.values()

    def _host(self, name: str, *, rules: bool = False) -> Host:
        rate, offset = self.chance.uniform(0.98, 1.02), self.chance.uniform(0, 1000)
        host = Host(self.network, name, rate, offset, rules=rules)
        host.skew = self.chance.choice([0.0, self.chance.uniform(-1, 1) * 86400 * 400])
        self._born[name] += 1
        self.network.add(host)
        return host

    def _line(self, host: Host) -> Line:
        line = Line(self.world, self.tables, self.roads, host)
        self._lines.append(line)
        return line

    def start_worker(self, name: str) -> None:
        """Unless there is one of the name."""
        if name in self.workers:
            return
        host = self._host(name)
        host.schema_version = self.troubles.schema_version_of(name)
        instance = f"{name}-{self._born[name]}"
        self._paths[instance] = Path()
        self._born_at[instance] = self.world.now
        self.workers[name] = WorkerProcess(
            host,
            instance,
            self.troubles.secret,
            self,
            Random(f"{self.seed}/{instance}"),
            self._ready_workers,
            self._activated,
        )

    def start_control_plane(self, name: str) -> None:
        """Unless there is one of the name."""
        if name in self.control_planes:
            return
        host = self._host(name, rules=True)
        chance = Random(f"{self.seed}/{name}-{self._born[name]}")
        line = self._line(host)
        self.control_planes[name] = ControlPlaneProcess(
            host, line, self.tables, self.troubles.accepted, chance, self._cannot_start
        )

    def _cannot_start(self, process: ControlPlaneProcess) -> None:
        self.world.at(0, partial(self.kill_control_plane, process, START_AGAIN_SECS))

    def _ready_workers(self) -> list[str]:
        return [
            name
            for name, worker in self.workers.items()
            if worker.ready and worker.pipeline.active is not None
        ]

    # Ends.

    def kill_worker(self, worker: WorkerProcess, again_secs: float) -> None:
        """At once; another one takes its place after a while."""
        name = worker.host.name
        if self.workers.get(name) is not worker:
            return
        del self.workers[name]
        self.gone.append(worker)
        worker.loop.kill()
        self.network.lose(worker.host)
        for lease in sorted(worker.witness.at_work):
            self.world.at(LINGER_SECS, partial(self.ended, lease.query_id))
        self.world.at(again_secs, partial(self.start_worker, name))

    def stop_worker(self, worker: WorkerProcess, again_secs: float) -> None:
        """In good order."""
        if not worker.ready or worker.stopping:
            return
        worker.resting = True
        worker.host.spawn(worker.stop())
        self._when_stopped(worker, again_secs, self.world.now + 45)

    def _when_stopped(self, worker: WorkerProcess, again_secs: float, until: float) -> None:
        if worker.stopped:
            self.ended_well.add(worker.instance)
        if worker.stopped or self.world.now > until:
            self.kill_worker(worker, again_secs)
        else:
            self.world.at(PROBE_SECS, partial(self._when_stopped, worker, again_secs, until))

    def kill_control_plane(self, process: ControlPlaneProcess, again_secs: float) -> None:
        """At once; another one takes its place after a while."""
        name = process.host.name
        if self.control_planes.get(name) is not process:
            return
        del self.control_planes[name]
        process.host.kill()
        self.tables.forget(process.line)
        self.network.lose(process.host)
        self.world.at(again_secs, partial(self.start_control_plane, name))

    def stop_control_plane(self, process: ControlPlaneProcess, again_secs: float) -> None:
        """In good order."""
        if process.started:
            process.host.spawn(process.stop(self.chance.uniform(0.2, 2)))
        self.world.at(3, partial(self.kill_control_plane, process, again_secs))

    # What is seen.

    def revision(self, stored: StoredConfig) -> str:
        """That of what is stored."""
        known = self._revisions.get(id(stored.tables))
        if known is None:
            known = self._revisions[id(stored.tables)] = revision_of(stored)
        return known

    def edit(self, edit: Edit) -> None:
        """Somebody stores it."""
        self.tables.put(edit.tables())
        self.edits[self.revision(self.tables.current)] = edit
        self.has_changed()

    def has_changed(self) -> None:
        """Something else is stored than before."""
        _, edit = self.current
        for name, cap in edit.caps.items():
            self.judge.cap(name, cap)
        self.world.mark("edit", edit.note)

    @property
    def current(self) -> tuple[str, Edit]:
        """What is stored now."""
        revision = self.revision(self.tables.current)
        return revision, self.edits[revision]

    def _said(self, stored: StoredConfig) -> None:
        """A control plane tells one configuration from another by where they stand: after a restore, and
        until its operator has said so, two may stand in one place."""
        there = self._stood.setdefault((stored.epoch, stored.sequence), {})
        there[self.revision(stored)] = None
        self._said_at.update(dict.fromkeys(there, self.world.now))

    def _activated(self, worker: WorkerProcess, snapshot: WorkerSnapshot) -> None:
        self.world.mark("uses", worker.instance, snapshot.sequence)
        if wrong := self._paths[worker.instance].step(snapshot):
            self.violate(f"{worker.instance} {wrong}")

    def _lost(self, query_id: str, row: Row, why: str) -> None:
        super()._lost(query_id, row, why)
        alive = any(worker.instance == row.instance for worker in self.workers.values())
        if alive and self.world.now > self._calm_from:
            self.violate(f"the lease of {query_id} runs out while nothing is wrong")

    def _look(self) -> None:
        self._complain(promises.of_worker, self._said_at, self.edits)
        for cluster, count in self.tables.counters.items():
            leases = sum(row.cluster == cluster for row in self.tables.rows.values())
            if leases != count:
                self.violate(f"{count} places of {cluster} are counted, and there are {leases} leases")
        if self._is_settled():
            for name in CAPS:
                self.judge.settled(name, self.world.now)
        self.world.at(PROBE_SECS, self._look)

    def _complain(self, promise: Callable[..., Iterator[str]], *arguments: Any) -> None:
        for worker in self.workers.values():
            if worker.ready:
                for wrong in promise(worker, *arguments):
                    self.violate(f"{worker.instance} {wrong}")

    def _is_settled(self) -> bool:
        """Whether nobody has, or can get, an older configuration."""
        revision, _ = self.current
        position = (self.tables.current.epoch, self.tables.current.sequence)
        return (
            len(self.workers) == len(WORKERS)
            and all(
                worker.ready and worker.sync.status.revision == revision for worker in self.workers.values()
            )
            and all(process.position == position for process in self.control_planes.values())
        )

    # The run.

    def run(self) -> Outcome:
        """From beginning to end."""
        logging.disable(logging.CRITICAL)
        try:
            with virtual(self.seed):
                return self._run()
        finally:
            logging.disable(logging.NOTSET)

    def _run(self) -> Outcome:
        try:
            self.edit(Edit(0, CAPS))
            for name in CONTROL_PLANES:
                self.start_control_plane(name)
            for name in WORKERS:
                self.world.at(self.chance.uniform(0, 2), partial(self.start_worker, name))
            self._look()
            self.troubles.begin(FAULTS_SECS)
            self.world.run(FAULTS_SECS)
            self.troubles.mend()
            self._calm_from = self.world.now + CALM_AFTER_SECS
            self.world.run(self.world.now + CONVERGE_SECS)
            self._check_converged()
            self._check_news()
            self._rest()
            self._check_accounts()
            self._check_places()
            return self._outcome()
        finally:
            self._bury()

    def _check_converged(self) -> None:
        revision, edit = self.current
        stored = self.tables.current
        if len(self.workers) < len(WORKERS) or not all(one.ready for one in self.workers.values()):
            self.violate(f"only {list(self.workers)} run in the end")
        self._complain(promises.of_convergence, revision, edit, (stored.epoch, stored.sequence))
        for worker in (*self.workers.values(), *self.gone):
            if worker.ready:
                lived = self.world.now - self._born_at[worker.instance]
                for wrong in (
                    *promises.of_compilations(worker, self.edits),
                    *promises.of_calls(worker, lived),
                ):
                    self.violate(f"{worker.instance} {wrong}")

    def _check_news(self) -> None:
        for worker in self.workers.values():
            worker.hurried = True
        self.edit(Edit(self.troubles.next_note(), CAPS))
        self.world.run(self.world.now + NEWS_SECS)
        revision, _ = self.current
        for worker in self.workers.values():
            if worker.ready and worker.sync.status.revision != revision:
                self.violate(f"{worker.instance} has not heard of an edit after {NEWS_SECS} s")

    def _rest(self) -> None:
        for worker in self.workers.values():
            worker.resting = True
        self.world.run(self.world.now + END_SECS)
        for worker in self.workers.values():
            if worker.at_rest < len(CLIENTS):
                self.violate(f"{len(CLIENTS) - worker.at_rest} clients of {worker.instance} never end")
        self.world.run(self.world.now + BOUND_SECS)
        if self.tables.rows or any(self.tables.counters.values()):
            self.violate(f"places are lost: {self.tables.rows}, {self.tables.counters}")

    def _check_accounts(self) -> None:
        everybody = [worker for worker in (*self.workers.values(), *self.gone) if worker.ready]
        for worker in everybody:
            ended_well = worker.instance in self.ended_well or worker in self.workers.values()
            for wrong in promises.of_records(worker, self.tables, ended_well=ended_well):
                self.violate(f"{worker.instance} {wrong}")
        for wrong in promises.of_history(self.tables, everybody):
            self.violate(wrong)
        for process in self.control_planes.values():
            process.host.spawn(self._check_registry(process))

    async def _check_registry(self, process: ControlPlaneProcess) -> None:
        try:
            shown = await process.workers()
        except StoreUnavailable as error:
            self.violate(f"{process.host.name} does not know its workers: {error.message}")
            return
        for wrong in promises.of_registry(shown, list(self.workers.values())):
            self.violate(f"{process.host.name}: {wrong}")

    def _check_places(self) -> None:
        _, edit = self.current
        for worker in self.workers.values():
            worker.at_rest = 0
            worker.host.spawn(worker.take_all(edit.caps))
            self.world.run(self.world.now + FULL_SECS)
            if not worker.at_rest:
                self.violate(f"{worker.instance} cannot take all places")

    def _bury(self) -> None:
        for line in self._lines:
            line.muted = True
        for worker in (*self.workers.values(), *self.gone):
            worker.witness.closing = True
        for host in self.network.born:
            host.bury()
        self.tables.loop.bury()

    def _outcome(self) -> Outcome:
        counts: Counter[str] = Counter()
        for worker in (*self.workers.values(), *self.gone):
            for what in worker.witness.violations:
                self.violate(what)
            counts.update(vars(worker.counts))
        for host in self.network.born:
            for what in host.failures:
                self.violate(f"{host.name}: {what}")
        for what in self.tables.loop.failures:
            self.violate(f"model: {what}")
        counts["records"] = len(self.tables.records)
        counts["activations"] = sum(len(worker.compiled) for worker in (*self.workers.values(), *self.gone))
        return Outcome(
            self.seed,
            self.judge.violations,
            self.judge.starts,
            self.troubles.made,
            self.judge.over,
            self.world.trace,
            counts,
        )


def simulate_fleet(
    seed: int, prepare: Callable[[FleetSimulation], object] = lambda simulation: None
) -> Outcome:
    """One seed; ``prepare`` may change the model before it begins."""
    return FleetSimulation(seed, prepare).run()
