"""Time, tasks, threads, byte streams and the metrics port: injected, so that tests own them."""
