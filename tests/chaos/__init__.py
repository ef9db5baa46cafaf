"""Real processes, real servers and faults, judged by an engine that counts: ``make chaos``."""
