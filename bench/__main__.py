"""Runs benchmark programs and writes what they measured beside what it was measured with.

Each program is a module ``bench.p<N>_...`` with ``ID``, ``TITLE`` and ``run() -> Result``. A timing never
fails.
"""

import argparse
import importlib
import json
import pkgutil
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import bench
from bench.result import Result

RESULTS = Path(__file__).parent / "results"


def programs() -> dict[str, ModuleType]:
    """Every benchmark by its id, in order of the ids."""
    names = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"]
    found = [importlib.import_module(f"bench.{name}") for name in names]
    known = {module.ID: module for module in found if hasattr(module, "ID")}
    return dict(sorted(known.items(), key=lambda item: (len(item[0]), item[0])))


def machine() -> dict[str, object]:
    """What it ran on."""
    model = "unknown"
    memory_gib = 0.0
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = f"{len(names)} x {names[0]}" if names else model
        total = Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]
        memory_gib = round(int(total) / 1024 / 1024, 1)
    return {
        "cpu": model,
        "memory_gib": memory_gib,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "python_loop_ns": round(interpreter_ns(), 1),
    }


def interpreter_ns(rounds: int = 200_000) -> float:
    """One turn of a small loop, at best: interpreters built without profile-guided optimisation take half
    as long again, and every figure of ours with them."""

    def turn(found: dict[int, int], key: int) -> int:
        found[key & 255] = key
        return len(found) + key

    def loop() -> float:
        found: dict[int, int] = {}
        began = time.perf_counter()
        for key in range(rounds):
            turn(found, key)
        return time.perf_counter() - began

    return min(loop() for _ in range(5)) / rounds * 1e9


def commit() -> str:
    """The commit that was measured."""
    shown = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()


def main() -> int:
    """Run what was asked for; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("only", nargs="*", help="ids to run; none: all")
    known = programs()
    only = parser.parse_args().only or list(known)
    if unknown := [name for name in only if name not in known]:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    RESULTS.mkdir(exist_ok=True)
    for name in only:
        module = known[name]
        print(f"== {name}: {module.TITLE}", flush=True)
        write(name, module.TITLE, module.run())
    return 0


def write(name: str, title: str, result: Result) -> None:
    """Print a result as rows beside each other, and keep it."""
    for label, value in result.figures.items():
        print(f"   {label:<34} {value:>14,.4g}")
    print(f"   peer: {result.peer}")
    for label, ratio in result.ratio.items():
        print(f"   ratio {label:<28} {ratio:>14,.3f}")
    if result.skipped:
        print(f"   not measured: {result.skipped}")
        return
    document = {
        "id": name,
        "title": title,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "machine": machine(),
        "figures": result.figures,
        "peer": result.peer,
        "ratio": result.ratio,
        "notes": result.notes,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
