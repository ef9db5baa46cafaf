"""The protocols clients speak, and the SQL dialect each of them writes."""

from enum import StrEnum


class ClientProtocol(StrEnum):
    """Identifiers of the routing configuration (docs/configuration.md, ``routers``)."""

    __hash__ = object.__hash__

    TRINO_HTTP = "trinoHttp"
    POSTGRES_WIRE = "postgresWire"
    MYSQL_WIRE = "mysqlWire"
    FLIGHT_SQL = "flightSql"
    CLICKHOUSE_HTTP = "clickhouseHttp"
    SNOWFLAKE_HTTP = "snowflakeHttp"
    SNOWFLAKE_SQL_API = "snowflakeSqlApi"
    MCP = "mcp"

    @property
    def dialect(self) -> str:
        """The sqlglot name of the dialect its clients write; empty where a client declares none."""
        return _DIALECTS[self]

    @property
    def label(self) -> str:
        """The spelling used in metric labels and history records, e.g. ``TrinoHttp``."""
        return _LABELS[self]


_DIALECTS = {
    ClientProtocol.TRINO_HTTP: "trino",
    ClientProtocol.POSTGRES_WIRE: "postgres",
    ClientProtocol.MYSQL_WIRE: "mysql",
    ClientProtocol.FLIGHT_SQL: "",
    ClientProtocol.CLICKHOUSE_HTTP: "clickhouse",
    ClientProtocol.SNOWFLAKE_HTTP: "snowflake",
    ClientProtocol.SNOWFLAKE_SQL_API: "snowflake",
    ClientProtocol.MCP: "",
}

_LABELS = {protocol: protocol.value[0].upper() + protocol.value[1:] for protocol in ClientProtocol}
