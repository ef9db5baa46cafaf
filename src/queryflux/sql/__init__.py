"""SQL text: its kind, its statements, its fingerprint, and the same question in another dialect."""
