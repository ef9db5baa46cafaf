"""SQLite: configuration and history of one process, in one file."""
