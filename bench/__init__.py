"""Benchmarks. ``make bench`` runs them all, ``make bench ONLY=P1`` one; figures go to bench/results/."""
