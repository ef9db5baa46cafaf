"""QueryFlux: one front door for SQL."""

__version__ = "0.1.0"
