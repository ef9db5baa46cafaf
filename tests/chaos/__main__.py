"""``python -m tests.chaos [capacity] --seconds N --seed S``: one line of figures, and the exit status."""

import argparse
import sys

from tests.chaos import capacity

ORACLES = {"capacity": capacity.run}


def main() -> int:
    """Run the oracles that are asked for."""
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument("only", nargs="*", help=f"of {', '.join(ORACLES)}; all without a name")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    good = True
    for name in arguments.only or ORACLES:
        outcome = ORACLES[name](arguments.seconds, arguments.seed)
        for violation in outcome.violations:
            print(violation, file=sys.stderr)
        print(outcome.line(), flush=True)
        good = good and outcome.ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
