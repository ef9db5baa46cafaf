"""The end of a process: it gives back what is its own, and nothing of another with its instance id."""

from random import Random

from queryflux.admission.leases import Leases
from queryflux.admission.lifecycle import Holding
from queryflux.admission.memory import Ledger
from queryflux.admission.port import Lease
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle


def process(clock: ManualClock, ledger: Ledger) -> Leases:
    """One with the instance id that all of them have here."""
    leases = Leases(FaultyStore(ledger, "r1"), clock, PrometheusMetrics(), chance=Random(1))
    leases.start()
    return leases


async def test_who_never_asked_gives_back_nothing_of_its_namesake() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    lives, starts = process(clock, ledger), process(clock, ledger)
    lives.ask(Holding(Lease("c", "a")), 2, lambda verdict, why: None)
    await settle()
    await starts.leave()
    assert set(ledger.rows) == {"a"}
    await lives.leave()
    assert not ledger.rows


async def test_who_took_a_query_over_gives_back_its_lease() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    ledger.add("a", "c", "r1")
    leases = process(clock, ledger)
    leases.adopt(Holding(Lease("c", "a")))
    await leases.leave()
    assert not ledger.rows


async def test_who_asked_gives_back_what_a_former_process_of_its_id_has_left() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    ledger.add("crashed", "c", "r1")
    leases = process(clock, ledger)
    leases.ask(Holding(Lease("c", "a")), 2, lambda verdict, why: None)
    await settle()
    await leases.leave()
    assert not ledger.rows
