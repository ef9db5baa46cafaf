"""The capacity of a fleet under faults, by seed: what happens, and what must hold.

Every query that runs has a lease in the database, or lost it for a reason: lease rows were destroyed, or its
process was stopped or cut off past the expiry. Only then may a cluster be past its cap. When the faults have
stopped, every query ends, every place comes free within the expiry and two sweeps, and every process can take
all there is.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.chaos.judge import Judge
from tests.sim.database import ModelDatabase
from tests.sim.engines import Engines
from tests.sim.process import CLIENTS, EXPIRY_SECS, SWEEP_SECS, Process
from tests.sim.road import Line, Road, Weather
from tests.sim.world import ProcessLoop, World

CAPS = {"one": 1, "few": 3}
PROCESSES = 3
FAULTS_SECS = 20.0
LAST_SECS = 5.0
"""Clients go on for so long when the faults are over."""
END_SECS = 20.0
"""Until every client has ended."""
BOUND_SECS = EXPIRY_SECS + 2 * SWEEP_SECS + 1
LINGER_SECS = 1.0


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    violations: list[str]
    grants: int
    faults: Counter[str]
    over: Counter[str]
    trace: int
    counts: Counter[str] = field(default_factory=Counter)


class Simulation(Engines):
    """One run."""

    def __init__(
        self, seed: int, prepare: "Callable[[Simulation], object]" = lambda simulation: None
    ) -> None:
        self.seed = seed
        self.world = World(seed)
        self.chance = self.world.chance
        super().__init__(self.world, ModelDatabase(self.world), Judge(CAPS, grace_secs=3))
        self.weather = Weather()
        self.processes: list[Process] = []
        self.dead: list[Process] = []
        self.faults: Counter[str] = Counter()
        self._born = 0
        self._caps = dict(CAPS)
        prepare(self)

    # Processes.

    def witnessed(self) -> list[Process]:
        """As Engines."""
        return self.processes

    def spawn(self) -> Process:
        """A new one."""
        self._born += 1
        rate, offset = self.chance.uniform(0.98, 1.02), self.chance.uniform(0, 1000)
        loop = ProcessLoop(self.world, rate, offset)
        instance = f"p{self._born}"
        line = Line(self.world, self.database, self.weather, loop)
        road = Road(line, self.database, instance)
        process = Process(loop, road, self, self._caps, Random(f"{self.seed}/{instance}"))
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """One dies; its queries go on for a moment; another one comes."""
        process = self.chance.choice(self.processes)
        self.processes.remove(process)
        self.dead.append(process)
        process.loop.kill()
        for lease in process.witness.at_work:
            self.world.at(LINGER_SECS, partial(self.ended, lease.query_id))
        self.spawn()

    # Faults.

    def stop(self, least: float, most: float) -> None:
        """A process takes no turn for a while."""
        process = self.chance.choice(self.processes)
        seconds = self.chance.uniform(least, most)
        process.loop.stop_for(seconds)
        process.stopped_at = self.world.now + seconds

    def cut(self, least: float, most: float) -> None:
        """A process does not reach the database for a while."""
        process = self.chance.choice(self.processes)
        process.road.line.cut_until = self.world.now + self.chance.uniform(least, most)

    def crash(self) -> None:
        """The database is away for a while."""
        self.database.crash()
        self.world.at(self.chance.uniform(0.2, 2), self.database.start)

    def destroy(self) -> None:
        """Lease rows go."""
        self.database.loop.spawn(self.database.destroy(self.chance.choice([0.4, 1.0])))

    def storm(self) -> None:
        """Calls are lost, late or repeated for a while."""
        weather = self.weather
        weather.way_secs = self.chance.choice([0.001, 0.02, 0.4])
        weather.lost_on_the_way = self.chance.uniform(0, 0.3)
        weather.lost_on_return = self.chance.uniform(0, 0.3)
        weather.cut = self.chance.uniform(0, 0.3)
        weather.twice = self.chance.uniform(0, 0.3)
        self.world.at(self.chance.uniform(0.5, 3), self.calm)

    def calm(self) -> None:
        """The roads are as they should be."""
        self.weather.__dict__.update(Weather().__dict__)

    def edit(self) -> None:
        """Other caps, which processes hear of one after another."""
        self._caps = {name: self.chance.choice([1, cap, cap + 2]) for name, cap in CAPS.items()}
        self.set_caps()

    def set_caps(self) -> None:
        """Tell everybody."""
        latest = 0.0
        for name, cap in self._caps.items():
            self.judge.cap(name, cap)
        for process in self.processes:
            wait = self.chance.uniform(0, 0.5)
            until = max(wait, process.stopped_at - self.world.now)
            latest = max(latest, until)
            self.world.at(wait, partial(process.loop.call_soon, self._tell, process))
        self.world.at(latest + 0.1, partial(self._settled, dict(self._caps)))

    def _tell(self, process: Process) -> None:
        process.reconfigure(self._caps)

    def _settled(self, caps: dict[str, int]) -> None:
        if caps == self._caps:
            for name in caps:
                self.judge.settled(name, self.world.now)

    def fault(self) -> None:
        """The next one, and when the one after it comes."""
        kinds: list[tuple[str, Callable[[], object]]] = [
            ("kill", self.kill),
            ("stop", partial(self.stop, 0.2, 2)),
            ("stop_long", partial(self.stop, 6, 10)),
            ("cut", partial(self.cut, 0.2, 2)),
            ("cut_off", partial(self.cut, 6, 10)),
            ("crash", self.crash),
            ("destroy", self.destroy),
            ("storm", self.storm),
            ("storm", self.storm),
            ("edit", self.edit),
        ]
        name, make = self.chance.choice(kinds)
        self.world.mark(name)
        self.faults[name] += 1
        make()
        wait = self.chance.expovariate(1 / 1.2)
        if self.world.now + wait < FAULTS_SECS:
            self.world.at(wait, self.fault)

    # The run.

    def run(self) -> Outcome:
        """From beginning to end."""
        logging.disable(logging.CRITICAL)
        try:
            for _ in range(PROCESSES):
                self.spawn()
            self.world.at(self.chance.uniform(0.5, 2), self.fault)
            self.world.run(FAULTS_SECS + 10)  # what has begun last ends
            self._caps = dict(CAPS)
            self.set_caps()
            self.world.run(self.world.now + LAST_SECS)
            self._rest()
            self._all_places()
            return self._outcome()
        finally:
            for process in (*self.processes, *self.dead):
                process.road.line.muted = True
                process.witness.closing = True
                process.loop.bury()
            self.database.loop.bury()
            logging.disable(logging.NOTSET)

    def _rest(self) -> None:
        for process in self.processes:
            process.resting = True
        self.world.run(self.world.now + END_SECS)
        for process in self.processes:
            if process.at_rest < len(CLIENTS):
                self.violate(f"{len(CLIENTS) - process.at_rest} clients of {process.instance} never end")
        self.world.run(self.world.now + BOUND_SECS)
        if self.database.rows or any(self.database.counters.values()):
            self.violate(f"places are lost: {self.database.rows}, {self.database.counters}")

    def _all_places(self) -> None:
        for process in self.processes:
            process.at_rest = 0
            process.loop.spawn(process.take_all(process.caps))
            self.world.run(self.world.now + 4)
            if not process.at_rest:
                self.violate(f"{process.instance} cannot take all places")

    def _outcome(self) -> Outcome:
        counts: Counter[str] = Counter()
        for process in (*self.processes, *self.dead):
            for what in (*process.witness.violations, *process.loop.failures):
                self.violate(what)
            counts.update(vars(process.counts))
        for what in self.database.loop.failures:
            self.violate(f"model: {what}")
        return Outcome(
            self.seed,
            self.judge.violations,
            self.judge.starts,
            self.faults,
            self.judge.over,
            self.world.trace,
            counts,
        )


def simulate(seed: int, prepare: Callable[[Simulation], object] = lambda simulation: None) -> Outcome:
    """One seed; ``prepare`` may change the model before it begins."""
    return Simulation(seed, prepare).run()
