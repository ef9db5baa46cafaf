"""PostgreSQL: its own frames relayed to PostgreSQL clients, Arrow by ADBC for all others."""

from queryflux.engines.postgres.engine import build

__all__ = ["build"]
