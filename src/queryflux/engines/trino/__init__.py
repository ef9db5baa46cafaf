"""Trino over HTTP: pages relayed as they are to the Trino door, decoded into Arrow for the others."""

from queryflux.engines.trino.engine import build

__all__ = ["build"]
