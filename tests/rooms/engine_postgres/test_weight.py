"""A process that relays PostgreSQL stays small."""

import subprocess
import sys


def test_the_relay_loads_nothing_heavy() -> None:
    code = (
        "import sys, queryflux.engines.postgres;"
        "heavy = {'pyarrow', 'numpy', 'adbc_driver_manager', 'adbc_driver_postgresql', 'sqlglot', 'duckdb'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
