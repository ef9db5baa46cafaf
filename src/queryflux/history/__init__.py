"""What is remembered of queries: one record each, in a bounded store."""
