"""TPC-H: data as Parquet files, made once and kept outside the checkout; the 22 queries of tests/fixtures."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

QUERIES = Path(__file__).parents[1] / "fixtures" / "tpch"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
NUMBERS = range(1, 23)


def cache_folder() -> Path:
    """Where tests keep what is costly to make or fetch."""
    base = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/tmp"), ".cache")
    return Path(base) / "queryflux-tests"


def tpch_data(scale: str) -> Path:
    """A folder with the eight tables; skips the test where the generator is missing."""
    folder = cache_folder() / f"tpch-{scale}"
    if all((folder / f"{table}.parquet").is_file() for table in TABLES):
        return folder
    tool = Path(sys.executable).parent / "tpchgen-cli"
    if not tool.is_file():
        pytest.skip("tpchgen-cli is not installed")
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    subprocess.run(
        [tool, "parquet", "-s", scale, f"--output-dir={unfinished}"], check=True, capture_output=True
    )
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    return folder


def query_text(number: int) -> str:
    """One of the 22, in PostgreSQL's dialect."""
    return (QUERIES / f"q{number:02d}.sql").read_text(encoding="utf-8").strip().rstrip(";")
