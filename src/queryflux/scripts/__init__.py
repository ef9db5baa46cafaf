"""Users' Python: compiled when a configuration is activated, run in a child process with limits."""
