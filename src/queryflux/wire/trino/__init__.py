"""The Trino client REST API, version 1 (Trino developer guide, "Client REST API")."""
