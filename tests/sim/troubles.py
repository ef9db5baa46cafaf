"""What happens to a simulated fleet until it is mended: faults, and what operators do, well or badly."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.controlplane import ControlPlaneProcess
from tests.sim.edits import CAPS, Edit
from tests.sim.network import Storm
from tests.sim.road import Weather
from tests.sim.virtual import NEWER
from tests.sim.worker import CONTROL_PLANES, UNUSABLE, WorkerProcess

if TYPE_CHECKING:
    from tests.sim.fleet import FleetSimulation

MEAN_PAUSE_SECS = 2.0
DAY = 86400.0


class Troubles:
    """Makes them, in an order that the seed decides."""

    def __init__(self, fleet: "FleetSimulation") -> None:
        self.fleet = fleet
        self.world = fleet.world
        self.chance = fleet.chance
        self.made: Counter[str] = Counter()
        self.secret = "first"
        """What workers that start now are given."""
        self.accepted = ["first"]
        """What control planes that start now accept."""
        self._until = 0.0
        self._notes = 0
        self._rotating = False
        self.versions = {name: self.chance.choice([1, 1, 2]) for name in ("w1", "w2", "w3")}
        self._edits: list[Edit] = []

    def schema_version_of(self, name: str) -> int:
        """The latest version of snapshots that a worker knows."""
        return self.versions[name]

    def next_note(self) -> int:
        """Of the next edit."""
        self._notes += 1
        return self._notes

    def begin(self, until: float) -> None:
        """Make trouble up to then."""
        self._until = until
        self.world.at(self.chance.uniform(2, 6), self._next)

    def _next(self) -> None:
        kinds: list[tuple[str, Callable[[], object]]] = [
            ("kill", self.kill),
            ("kill", self.kill),
            ("stop", self.stop),
            ("pause", partial(self.pause, 0.2, 2)),
            ("pause_long", partial(self.pause, 6, 10)),
            ("cut", partial(self.cut, 0.5, 3)),
            ("cut_off", partial(self.cut, 8, 20)),
            ("half_cut", self.half_cut),
            ("skew", self.skew),
            ("control_plane_kill", self.kill_control_plane),
            ("control_plane_stop", self.stop_control_plane),
            ("control_plane_pause", self.pause_control_plane),
            ("control_plane_cut", self.cut_control_plane),
            ("outage", self.outage),
            ("crash", partial(self.crash, 0.2, 2)),
            ("database_away", partial(self.crash, 12, 25)),
            ("lag", self.lag),
            ("silence", self.silence),
            ("restore", self.restore),
            ("storm", self.storm),
            ("storm", self.storm),
            ("edit", self.edit),
            ("edit", self.edit),
            ("back", self.back),
            ("unusable", partial(self.bad_edit, UNUSABLE)),
            ("newer", partial(self.bad_edit, NEWER)),
            ("newer_and_outage", self.newer_and_outage),
            ("rotate", self.rotate),
        ]
        name, make = self.chance.choice(kinds)
        self.world.mark(name)
        self.made[name] += 1
        make()
        wait = self.chance.expovariate(1 / MEAN_PAUSE_SECS)
        if self.world.now + wait < self._until:
            self.world.at(wait, self._next)

    def _worker(self) -> WorkerProcess | None:
        workers = list(self.fleet.workers.values())
        return self.chance.choice(workers) if workers else None

    def _control_plane(self) -> ControlPlaneProcess | None:
        processes = list(self.fleet.control_planes.values())
        return self.chance.choice(processes) if processes else None

    # Workers.

    def kill(self) -> None:
        """kill -9."""
        if worker := self._worker():
            self.fleet.kill_worker(worker, self.chance.uniform(0.1, 3))

    def stop(self) -> None:
        """A worker ends in good order, and starts again."""
        if worker := self._worker():
            self.fleet.stop_worker(worker, self.chance.uniform(0.1, 1))

    def pause(self, least: float, most: float) -> None:
        """A worker takes no turn for a while."""
        if worker := self._worker():
            seconds = self.chance.uniform(least, most)
            worker.loop.stop_for(seconds)
            worker.stopped_at = self.world.now + seconds

    def cut(self, least: float, most: float) -> None:
        """A worker reaches nobody for a while."""
        if worker := self._worker():
            until = self.world.now + self.chance.uniform(least, most)
            for name in self.fleet.network.hosts:
                if name != worker.host.name:
                    self.fleet.network.cut(worker.host.name, name, until)

    def half_cut(self) -> None:
        """A worker does not reach one of the control planes."""
        if worker := self._worker():
            until = self.world.now + self.chance.uniform(2, 20)
            self.fleet.network.cut(worker.host.name, self.chance.choice(CONTROL_PLANES), until)

    def skew(self) -> None:
        """Somebody's clock on the wall is set."""
        host = self.chance.choice(list(self.fleet.network.hosts.values()))
        host.skew += self.chance.choice([-1, 1]) * self.chance.choice([5.0, 3600.0, 400 * DAY])

    # Control planes.

    def kill_control_plane(self) -> None:
        """kill -9."""
        if process := self._control_plane():
            self.fleet.kill_control_plane(process, self.chance.uniform(0.1, 5))

    def stop_control_plane(self) -> None:
        """In good order, as for an upgrade."""
        if process := self._control_plane():
            self.fleet.stop_control_plane(process, self.chance.uniform(0.1, 2))

    def pause_control_plane(self) -> None:
        """It takes no turn for a while."""
        if process := self._control_plane():
            process.host.stop_for(self.chance.uniform(0.2, 8))

    def cut_control_plane(self) -> None:
        """It does not reach the database for a while."""
        if process := self._control_plane():
            process.line.cut_until = self.world.now + self.chance.uniform(1, 20)

    def outage(self) -> None:
        """All control planes are gone for a while, and a worker starts meanwhile."""
        seconds = self.chance.uniform(6, 15)
        for process in list(self.fleet.control_planes.values()):
            self.fleet.kill_control_plane(process, seconds)
        self.world.at(0.5, self.kill)

    # The database, and the ways to it.

    def crash(self, least: float, most: float) -> None:
        """The database is away for a while."""
        self.fleet.tables.crash()
        until = self.world.now + self.chance.uniform(least, most)
        self._away_until = until
        self.world.at(until - self.world.now, partial(self._back, until))

    def _back(self, until: float) -> None:
        if until == self._away_until:
            self.fleet.tables.start()

    def lag(self) -> None:
        """A control plane reads a replica that is behind, while others hear of an edit; another one goes."""
        if (process := self._control_plane()) and process.started:
            process.store.lag_secs = self.chance.uniform(2, 20)
            self.world.at(self.chance.uniform(5, 20), partial(setattr, process.store, "lag_secs", 0.0))
            self.world.at(self.chance.uniform(0, 2), self.edit)
            self.world.at(self.chance.uniform(3, 8), self.kill_control_plane)

    def silence(self) -> None:
        """Notices of changes are lost for a while."""
        self.fleet.tables.notices_lost = True
        self.world.at(self.chance.uniform(5, 20), partial(setattr, self.fleet.tables, "notices_lost", False))

    def restore(self) -> None:
        """A backup of the database comes back; the operator says so at once, or later."""
        self.fleet.tables.restore(self.chance.choice([1, 2, 3]))
        self.fleet.has_changed()
        self._restored = True
        self.world.at(self.chance.choice([0.0, self.chance.uniform(0, 15)]), self._new_epoch)

    _restored = False
    _away_until = 0.0

    def _new_epoch(self) -> None:
        if self._restored:
            self._restored = False
            self.fleet.tables.new_epoch()

    def storm(self) -> None:
        """Calls are lost, late, repeated or spoilt for a while."""
        chance, weather, roads = self.chance, self.fleet.weather, self.fleet.roads
        weather.way_secs = chance.choice([0.001, 0.02, 0.4])
        for name in ("lost_on_the_way", "lost_on_return", "cut", "twice", "spoilt"):
            setattr(weather, name, chance.uniform(0, 0.3))
        roads.way_secs = chance.choice([0.001, 0.02, 0.1])
        for name in ("lost_on_the_way", "lost_on_return", "cut", "twice"):
            setattr(roads, name, chance.uniform(0, 0.2))
        self.world.at(chance.uniform(0.5, 6), self.calm)

    def calm(self) -> None:
        """All ways are as they should be."""
        self.fleet.weather.__dict__.update(Storm().__dict__)
        self.fleet.roads.__dict__.update(Weather().__dict__)

    # What operators do.

    def edit(self) -> None:
        """Another configuration: with other caps, other rules for records, or what does not matter here."""
        caps = dict(CAPS)
        if self.chance.random() < 0.3:
            caps = {name: self.chance.choice([1, cap, cap + 2]) for name, cap in CAPS.items()}
        redaction = self.chance.choice(["none", "none", "maskLiterals", "metadata"])
        self.put(Edit(self.next_note(), caps, redaction))

    def back(self) -> None:
        """An earlier configuration again."""
        if self._edits:
            self.put(self.chance.choice(self._edits))

    def bad_edit(self, extra: str) -> None:
        """One that workers cannot use, or not all of them; mostly it is soon put right."""
        self.put(Edit(self.next_note(), CAPS, extra=extra))
        if self.chance.random() < 0.85:
            self.world.at(self.chance.uniform(1, 10), self.edit)

    def newer_and_outage(self) -> None:
        """Some workers have refused the latest, and one starts that could use it and has only them to ask."""
        self.bad_edit(NEWER)
        self.world.at(self.chance.uniform(2, 5), self.outage)

    def put(self, edit: Edit) -> None:
        """Store it, if there is a database."""
        if not self.fleet.tables.down:
            self._edits.append(edit)
            self.fleet.edit(edit)

    def rotate(self) -> None:
        """Another secret: control planes accept both, workers get the new one, the old one goes. Sometimes it
        goes too early."""
        if self._rotating:
            return
        self._rotating = True
        before, self.secret_to_be = self.secret, f"secret-{self.next_note()}"
        early = self.chance.random() < 0.3
        self.accepted = [self.secret_to_be] if early else [before, self.secret_to_be]
        self._restart_control_planes()
        self.world.at(6, self._rotate_workers)
        self.world.at(14, self._rotated)

    secret_to_be = ""

    def _rotate_workers(self) -> None:
        self.secret = self.secret_to_be
        for number, worker in enumerate(list(self.fleet.workers.values())):
            self.world.at(2 * number, partial(self.fleet.kill_worker, worker, 0.2))

    def _rotated(self) -> None:
        self.accepted = [self.secret]
        self._rotating = False
        self._restart_control_planes()

    def _restart_control_planes(self) -> None:
        for number, process in enumerate(list(self.fleet.control_planes.values())):
            self.world.at(4 * number, partial(self.fleet.stop_control_plane, process, 0.2))

    # The end of trouble.

    def mend(self) -> None:
        """Everything is as it should be from now on; what is being started goes on starting."""
        self.calm()
        self.fleet.network.mend()
        self._away_until = 0.0
        self.fleet.tables.start()
        self.fleet.tables.notices_lost = False
        self._new_epoch()
        if self.secret_to_be:
            self.secret = self.secret_to_be
        self.accepted = [self.secret]
        for process in list(self.fleet.control_planes.values()):
            process.line.cut_until = 0.0
            if process.started:
                process.store.lag_secs = 0.0
            if process.secrets != tuple(self.accepted):
                self.fleet.kill_control_plane(process, 0.2)
        for worker in list(self.fleet.workers.values()):
            if worker.secret.reveal() != self.secret:
                self.fleet.kill_worker(worker, 0.2)
