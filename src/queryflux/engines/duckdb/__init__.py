"""DuckDB inside the process: a file, memory, or a folder of files served read-only."""

from queryflux.engines.duckdb.engine import build

__all__ = ["build"]
