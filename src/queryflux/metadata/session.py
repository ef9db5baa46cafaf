"""What catalog queries may know of the client's session."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from queryflux.model.settings import MYSQL_DEFAULTS, MYSQL_SYNONYMS, MYSQL_VERSION, shown

POSTGRES_VERSION = "16.4"
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
    "jit": "on",
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
_MYSQL_SETTINGS = {name: shown(value) for name, value in MYSQL_DEFAULTS.items()}
SETTINGS: dict[str, Mapping[str, str]] = {"postgres": _POSTGRES_SETTINGS, "mysql": _MYSQL_SETTINGS}


@dataclass(frozen=True, slots=True)
class SessionValues:
    """``database`` is what current_database() says, ``schema`` the current schema (empty: none), ``fallback``
    the one in which a MySQL client's plain names are looked for next, ``own`` the schema that each of the
    engine's own databases stands for, by its name in lower case, ``own_qualifies`` whether such a name may
    also stand before a table's, ``catalog`` the Trino session's catalog, ``extra`` the protocol's own
    settings, which win over the usual ones."""

    dialect: str = ""
    user: str = ""
    database: str = ""
    schema: str = ""
    fallback: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    own_qualifies: bool = False
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
        if self.dialect == "mysql":
            key = MYSQL_SYNONYMS.get(key, key)
        for known, value in self.extra.items():
            if known.lower() == key:
                return value
        return SETTINGS.get(self.dialect, {}).get(key)

    def variable(self, name: str) -> str | None:
        """A MySQL variable as SELECT gives it: switches are 1 and 0."""
        value = self.setting(name)
        return {"ON": "1", "OFF": "0"}.get(value or "", value)
