"""A door that relays must stay small."""

import subprocess
import sys


def test_the_door_alone_loads_neither_arrow_nor_numpy() -> None:
    code = """
import sys
import queryflux.frontends.postgres.door
print(sorted({"pyarrow", "numpy", "duckdb", "sqlglot"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
