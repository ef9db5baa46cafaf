"""The Trino HTTP door: what the Trino CLI, JDBC driver and Python package speak."""
