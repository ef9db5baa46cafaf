"""What a session begins with: the MySQL variables that its door and its catalog answer alike."""

from types import MappingProxyType

Value = str | int | bool | None
"""A bool is shown as 1 or 0 by SELECT and as ON or OFF by SHOW."""

MYSQL_VERSION = "8.0.40-QueryFlux"
NO_LIMIT = 18_446_744_073_709_551_615
MYSQL_COLLATION = "utf8mb4_general_ci"
_SQL_MODE = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)
MYSQL_DEFAULTS: MappingProxyType[str, Value] = MappingProxyType(
    {
        "auto_increment_increment": 1,
        "auto_increment_offset": 1,
        "autocommit": True,
        "big_tables": False,
        "character_set_client": "utf8mb4",
        "character_set_connection": "utf8mb4",
        "character_set_database": "utf8mb4",
        "character_set_filesystem": "binary",
        "character_set_results": "utf8mb4",
        "character_set_server": "utf8mb4",
        "character_set_system": "utf8mb3",
        "collation_connection": MYSQL_COLLATION,
        "collation_database": MYSQL_COLLATION,
        "collation_server": MYSQL_COLLATION,
        "connect_timeout": 30,
        "default_storage_engine": "InnoDB",
        "default_week_format": 0,
        "div_precision_increment": 4,
        "event_scheduler": False,
        "explicit_defaults_for_timestamp": True,
        "foreign_key_checks": True,
        "group_concat_max_len": 1024,
        "have_openssl": "YES",
        "have_profiling": "NO",
        "have_query_cache": "NO",
        "have_ssl": "YES",
        "hostname": "queryflux",
        "identity": 0,
        "init_connect": "",
        "innodb_lock_wait_timeout": 50,
        "interactive_timeout": 28_800,
        "language": "English",
        "last_insert_id": 0,
        "lc_messages": "en_US",
        "lc_time_names": "en_US",
        "license": "Apache-2.0",
        "local_infile": False,
        "lock_wait_timeout": 31_536_000,
        "lower_case_file_system": False,
        "lower_case_table_names": 0,
        "max_allowed_packet": 16_777_216,
        "max_connections": 0,
        "max_error_count": 64,
        "max_execution_time": 0,
        "max_join_size": NO_LIMIT,
        "max_prepared_stmt_count": 4096,
        "max_sort_length": 1024,
        "net_buffer_length": 16_384,
        "net_read_timeout": 30,
        "net_write_timeout": 60,
        "optimizer_switch": "",
        "performance_schema": False,
        "port": 0,
        "profiling": False,
        "protocol_version": 10,
        "query_cache_size": 0,
        "query_cache_type": "OFF",
        "query_tags": "",
        "read_only": False,
        "server_id": 1,
        "server_uuid": "",
        "session_track_schema": True,
        "session_track_state_change": False,
        "session_track_system_variables": "",
        "skip_networking": False,
        "socket": "",
        "sql_auto_is_null": False,
        "sql_big_selects": True,
        "sql_mode": _SQL_MODE,
        "sql_notes": True,
        "sql_quote_show_create": True,
        "sql_require_primary_key": False,
        "sql_safe_updates": False,
        "sql_select_limit": NO_LIMIT,
        "sql_warnings": False,
        "storage_engine": "InnoDB",
        "super_read_only": False,
        "system_time_zone": "UTC",
        "time_zone": "UTC",
        "timestamp": 0,
        "transaction_isolation": "READ-COMMITTED",
        "transaction_read_only": False,
        "tx_isolation": "READ-COMMITTED",
        "tx_read_only": False,
        "unique_checks": True,
        "version": MYSQL_VERSION,
        "version_comment": "QueryFlux",
        "version_compile_machine": "",
        "version_compile_os": "",
        "wait_timeout": 28_800,
        "warning_count": 0,
        "error_count": 0,
    }
)

MYSQL_SYNONYMS = {
    "tx_isolation": "transaction_isolation",
    "tx_read_only": "transaction_read_only",
    "query_tag": "query_tags",
    "storage_engine": "default_storage_engine",
}
"""Older names of variables."""


def shown(value: Value) -> str:
    """A value as SHOW VARIABLES and ``Session.extra`` spell it."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return "" if value is None else str(value)
