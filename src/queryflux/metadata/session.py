"""What catalog queries may know of the client's session."""

from collections.abc import Mapping
from dataclasses import dataclass, field

POSTGRES_VERSION = "16.4"
MYSQL_VERSION = "8.0.40-QueryFlux"
TRINO_VERSION = "476"

_POSTGRES_SETTINGS = {
    "server_version": f"{POSTGRES_VERSION} (QueryFlux)",
    "server_version_num": "160004",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "timezone": "UTC",
    "intervalstyle": "postgres",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "default_transaction_read_only": "off",
    "max_index_keys": "32",
    "max_identifier_length": "63",
    "default_table_access_method": "heap",
    "jit": "off",
    "extra_float_digits": "1",
    "search_path": '"$user", public',
    "lc_collate": "C",
    "lc_ctype": "C",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "max_connections": "100",
    "statement_timeout": "0",
    "row_security": "on",
    "application_name": "",
    "block_size": "8192",
    "escape_string_warning": "on",
    "wal_level": "replica",
}
_MYSQL_SETTINGS = {
    "version": MYSQL_VERSION,
    "version_comment": "QueryFlux",
    "version_compile_os": "Linux",
    "version_compile_machine": "x86_64",
    "protocol_version": "10",
    "autocommit": "1",
    "auto_increment_increment": "1",
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "character_set_system": "utf8mb3",
    "collation_connection": "utf8mb4_0900_ai_ci",
    "collation_database": "utf8mb4_0900_ai_ci",
    "collation_server": "utf8mb4_0900_ai_ci",
    "default_storage_engine": "InnoDB",
    "init_connect": "",
    "interactive_timeout": "28800",
    "license": "Apache-2.0",
    "lower_case_table_names": "0",
    "max_allowed_packet": "67108864",
    "net_buffer_length": "16384",
    "net_read_timeout": "30",
    "net_write_timeout": "60",
    "performance_schema": "OFF",
    "port": "3306",
    "query_cache_size": "0",
    "query_cache_type": "OFF",
    "read_only": "0",
    "sql_auto_is_null": "0",
    "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    "sql_quote_show_create": "1",
    "sql_select_limit": "18446744073709551615",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": "0",
    "tx_isolation": "REPEATABLE-READ",
    "tx_read_only": "0",
    "wait_timeout": "28800",
}
SETTINGS: dict[str, Mapping[str, str]] = {"postgres": _POSTGRES_SETTINGS, "mysql": _MYSQL_SETTINGS}
NUMERIC_SETTINGS = frozenset(name for name, value in _MYSQL_SETTINGS.items() if value.isdigit())


@dataclass(frozen=True, slots=True)
class SessionValues:
    """``database`` is what current_database() says, ``schema`` the current schema (empty: none), ``catalog``
    the Trino session's catalog, ``extra`` the protocol's own settings, which win over the usual ones."""

    dialect: str = ""
    user: str = ""
    database: str = ""
    schema: str = ""
    catalog: str | None = None
    search_path: tuple[str, ...] = ()
    peer: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Clients for which this is the same see the same catalog."""
        return self.dialect, self.user, self.database, self.schema, self.search_path

    @property
    def version(self) -> str:
        """What version() says to this client."""
        if self.dialect == "postgres":
            return f"PostgreSQL {POSTGRES_VERSION} (QueryFlux)"
        return {"mysql": MYSQL_VERSION, "trino": TRINO_VERSION}.get(self.dialect, "QueryFlux")

    @property
    def current_user(self) -> str:
        """The user, with its host for MySQL clients."""
        host = self.peer.rpartition(":")[0] or "localhost"
        return f"{self.user}@{host}" if self.dialect == "mysql" else self.user

    @property
    def connection_id(self) -> int:
        """The MySQL connection id, where the door has told it."""
        number = self.extra.get("connection_id", "0")
        return int(number) if number.isdigit() else 0

    def setting(self, name: str) -> str | None:
        """A setting by name, in any case; None when there is no such setting."""
        key = name.lower().removeprefix("session.").removeprefix("global.")
        for known, value in self.extra.items():
            if known.lower() == key:
                return value
        if key == "search_path" and self.search_path:
            return ", ".join(self.search_path)
        return SETTINGS.get(self.dialect, {}).get(key)
