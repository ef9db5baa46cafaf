"""``python -m tests.sim [capacity|fleet] [--seeds N] [--first S] [--jobs N]``: seeds in a row, and what is
wrong with them. Without a name both simulations are run.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.sim.seeds import KINDS, outcomes, processes


def simulation(pool: ProcessPoolExecutor, kind: str, first: int, seeds: int) -> bool:
    """Run one; whether all was as it should be."""
    began = time.monotonic()
    faults: Counter[str] = Counter()
    over: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    bad = 0
    for outcome in outcomes(pool, kind, first, seeds):
        faults.update(outcome.faults)
        over.update(outcome.over)
        counts.update(outcome.counts)
        bad += bool(outcome.violations)
        for what in outcome.violations:
            print(f"{kind} seed {outcome.seed}: {what}", flush=True)
    print(
        f"simulation {kind} seeds={seeds} seconds={time.monotonic() - began:.0f} queries={dict(counts)}"
        f" faults={dict(faults)} over={dict(over)} failed={bad} {'FAILED' if bad else 'ok'}",
        flush=True,
    )
    return not bad


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(prog="sim")
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: as many as there are processors")
    arguments = parser.parse_args()
    kinds = (arguments.kind,) if arguments.kind else KINDS
    with processes(arguments.jobs) as pool:
        good = [simulation(pool, kind, arguments.first, arguments.seeds) for kind in kinds]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
