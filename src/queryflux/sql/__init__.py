"""SQL text: its kind, its statements, and the same question in another dialect."""
