"""The settings of one session: what the client set at start-up and with SET, and what SHOW answers.

They decide how we write values (TimeZone), become ``Session.extra`` for routing and engines, and are reported
as ParameterStatus where PostgreSQL 16 reports them. On an engine that speaks PostgreSQL the server's own
answer stands, and they are kept beside it.
"""

import re
from collections.abc import Iterator, Mapping
from zoneinfo import ZoneInfo

from queryflux.wire.postgres.errors import PostgresError

SERVER_VERSION = "16.4 (QueryFlux)"
SERVER_VERSION_NUM = "160004"

# GUC_REPORT of PostgreSQL 16 in its own spelling, with a new session's values.
REPORTED: dict[str, str] = {
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "is_superuser": "off",
    "application_name": "",
    "default_transaction_read_only": "off",
    "scram_iterations": "4096",
    "DateStyle": "ISO, MDY",
    "standard_conforming_strings": "on",
    "session_authorization": "",
    "client_encoding": "UTF8",
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
}
_SETTABLE: dict[str, str] = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_min_messages": "notice",
    "cursor_tuple_fraction": "0.1",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "effective_cache_size": "4GB",
    "escape_string_warning": "on",
    "extra_float_digits": "1",
    "from_collapse_limit": "8",
    "geqo": "on",
    "gin_fuzzy_search_limit": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "jit": "on",
    "join_collapse_limit": "8",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "lock_timeout": "0",
    "maintenance_work_mem": "64MB",
    "max_parallel_workers_per_gather": "2",
    "plan_cache_mode": "auto",
    "quote_all_identifiers": "off",
    "random_page_cost": "4",
    "row_security": "on",
    "search_path": '"$user", public',
    "seq_page_cost": "1",
    "session_replication_role": "origin",
    "statement_timeout": "0",
    "synchronize_seqscans": "on",
    "synchronous_commit": "on",
    "temp_buffers": "8MB",
    "transaction_deferrable": "off",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "transaction_timeout": "0",
    "transform_null_equals": "off",
    "work_mem": "4MB",
    "xmlbinary": "base64",
    "xmloption": "content",
    "query_tags": "",
}
_FIXED: dict[str, str] = {
    "block_size": "8192",
    "lc_collate": "C",
    "lc_ctype": "C",
    "max_connections": "100",
    "max_function_args": "100",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "max_prepared_transactions": "0",
    "server_version_num": SERVER_VERSION_NUM,
    "ssl": "off",
    "wal_level": "replica",
}
_READ_ONLY = {name.lower() for name in (*_FIXED, "in_hot_standby", "integer_datetimes", "is_superuser")} | {
    "server_version",
    "server_encoding",
    "scram_iterations",
    "session_authorization",
}
_REPORTED_NAMES = {name.lower(): name for name in REPORTED}
_DEFAULTS = {name.lower(): value for name, value in (REPORTED | _SETTABLE | _FIXED).items()}
_ALIASES = {"time zone": "timezone", "names": "client_encoding", "query_tag": "query_tags"}
_UTF8 = {"utf8", "unicode", "sqlascii"}
_ON = {"on", "true", "yes", "1", "t", "y"}
_OFF = {"off", "false", "no", "0", "f", "n"}
_NOT_SETTINGS = {"user", "database", "options", "replication"}
_OFFSET = re.compile(r"(?P<zone>GMT|UTC)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>[0-5]\d))?", re.I)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|min|h|d)?")
MAX_VALUE = 1024
MAX_OWN = 100


class Settings:
    """Names are looked up in any case. Every change that PostgreSQL reports waits in ``reports``."""

    def __init__(self, user: str, parameters: Mapping[str, str]) -> None:
        """Raises PostgresError for a start-up parameter with a value that cannot be."""
        self._base = dict(_DEFAULTS)
        self._base["session_authorization"] = user
        self._client: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self._local: dict[str, str | None] = {}
        for name, value in parameters.items():
            if name not in _NOT_SETTINGS:
                self._client[_key(name)] = _checked(_key(name), value, startup=True)
        self._initial = dict(self._client)
        self.statement_timeout = self._duration("statement_timeout")
        """Seconds a statement may take; 0: no limit."""
        self.in_transaction = False
        """Whether ``begin`` was called, and ``end`` was not."""
        self.changed = False
        """Whether ``reports`` may have something to tell."""
        self._told = {shown: self.get(name) or "" for name, shown in _REPORTED_NAMES.items()}

    def get(self, name: str) -> str | None:
        """The value, or None for a setting that does not exist."""
        key = _key(name)
        return self._client.get(key, self._base.get(key))

    def shown(self, name: str) -> str:
        """The name as PostgreSQL spells it."""
        key = _key(name)
        return _REPORTED_NAMES.get(key, key)

    def is_known(self, name: str) -> bool:
        """Whether SHOW has an answer to it."""
        return self.get(name) is not None

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        """SET; None is DEFAULT. Raises PostgresError for an unknown name or a value that cannot be."""
        key = _key(name)
        if key in _READ_ONLY:
            raise PostgresError(f'parameter "{name}" cannot be changed', "55P02")
        if key not in _DEFAULTS and "." not in key and not key.startswith("enable_"):
            raise PostgresError(
                f'unrecognized configuration parameter "{name}"',
                "42704",
                hint="settings of the engine behind this door belong in its own configuration",
            )
        if local:
            if not self.in_transaction:
                return
            self._local.setdefault(key, self._client.get(key))
        self._put(key, None if value is None else _checked(key, value))

    def _duration(self, key: str) -> float:
        value = _DURATION.fullmatch((self.get(key) or "0").strip())
        return float(value["amount"]) * _UNITS[value["unit"] or "ms"] if value is not None else 0

    def _put(self, key: str, value: str | None) -> None:
        if value is None:
            value = self._initial.get(key)
        if value is None:
            self._client.pop(key, None)
        elif key in self._client or len(self._client) < MAX_OWN:
            self._client[key] = value
        else:
            raise PostgresError(f"more than {MAX_OWN} settings in one session", "54000")
        self._changed()

    def _changed(self) -> None:
        self.changed = True
        self.statement_timeout = self._duration("statement_timeout")

    def reset_all(self) -> None:
        """RESET ALL: back to what the session began with."""
        self._client = dict(self._initial)
        self._changed()

    def begin(self) -> None:
        """A transaction begins: ROLLBACK takes back what SET does in it."""
        if not self.in_transaction:
            self.in_transaction = True
            self._before = dict(self._client)
            self._local.clear()

    def end(self, *, committed: bool) -> None:
        """The transaction ends, and SET LOCAL with it."""
        if not self.in_transaction:
            return
        if not committed:
            self._client = self._before
            self._changed()
        else:
            for key, value in self._local.items():
                self._put(key, value)
        self.in_transaction = False
        self._before = {}
        self._local.clear()

    def reports(self) -> Iterator[tuple[str, str]]:
        """Reported settings whose value the client has not been told yet."""
        self.changed = False
        for name, shown in _REPORTED_NAMES.items():
            value = self.get(name) or ""
            if self._told[shown] != value:
                self._told[shown] = value
                yield shown, value

    def all_reported(self) -> Iterator[tuple[str, str]]:
        """Every reported setting, for a session that begins."""
        yield from self._told.items()

    def every(self) -> list[tuple[str, str]]:
        """SHOW ALL."""
        merged = self._base | self._client
        return sorted((_REPORTED_NAMES.get(name, name), value) for name, value in merged.items())

    def given(self) -> dict[str, str]:
        """What the client has set, names in lower case, for ``Session.extra``."""
        return dict(self._client)

    @property
    def time_zone(self) -> str:
        """The IANA name of the zone in which timestamptz is written."""
        return self.get("timezone") or "UTC"


def _key(name: str) -> str:
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered)


def _checked(key: str, value: str, *, startup: bool = False) -> str:
    """The value as it is kept. Raises PostgresError."""
    if len(value) > MAX_VALUE and key != "query_tags":
        raise PostgresError(f'the value of parameter "{key}" is longer than {MAX_VALUE} characters', "22023")
    check = _CHECKS.get(key)
    if check is not None:
        return check(key, value)
    if not startup and _DEFAULTS.get(key) in ("on", "off"):
        return _switch(key, value)
    return value


def _refused(key: str, value: str) -> PostgresError:
    return PostgresError(f'invalid value for parameter "{key}": "{value}"', "22023")


def _switch(key: str, value: str) -> str:
    word = value.strip().lower()
    if word in _ON:
        return "on"
    if word in _OFF:
        return "off"
    raise _refused(key, value)


def _only_on(key: str, value: str) -> str:
    if _switch(key, value) == "off":
        raise PostgresError(f'parameter "{key}" cannot be off here', "0A000")
    return "on"


def _encoding(key: str, value: str) -> str:
    # As PostgreSQL reads them: only letters and digits count (asyncpg sends 'utf-8', quotes and all).
    word = "".join(char for char in value.lower() if char.isalnum())
    if word not in _UTF8:
        raise PostgresError(
            f'client encoding "{value}" is not supported', "0A000", hint="set client_encoding to UTF8"
        )
    return "SQL_ASCII" if word == "sqlascii" else "UTF8"


def _date_style(key: str, value: str) -> str:
    words = [word.strip().upper() for word in value.split(",")]
    order = "MDY"
    for word in words:
        if word in ("MDY", "DMY", "YMD", "US", "NONEURO", "NONEUROPEAN", "EURO", "EUROPEAN"):
            order = {"US": "MDY", "EURO": "DMY", "EUROPEAN": "DMY"}.get(word, word)
            order = "MDY" if order.startswith("NON") else order
        elif word in ("POSTGRES", "SQL", "GERMAN"):
            raise PostgresError(f'DateStyle "{value}" is not supported', "0A000", hint="use ISO")
        elif word not in ("ISO", "DEFAULT"):
            raise _refused("DateStyle", value)
    return f"ISO, {order}"


def _interval_style(key: str, value: str) -> str:
    word = value.strip().lower()
    if word in ("postgres_verbose", "sql_standard", "iso_8601"):
        raise PostgresError(f'IntervalStyle "{value}" is not supported', "0A000", hint="use postgres")
    if word != "postgres":
        raise _refused("IntervalStyle", value)
    return word


def _time_limit(key: str, value: str) -> str:
    if _DURATION.fullmatch(value.strip()) is None:
        raise _refused(key, value)
    return value.strip()


def _bytea_output(key: str, value: str) -> str:
    if value.strip().lower() != "hex":
        raise PostgresError(f'bytea_output "{value}" is not supported', "0A000", hint="use hex")
    return "hex"


def _zone(key: str, value: str) -> str:
    name = value.strip().strip("'\"")
    if name.lower() in ("utc", "gmt", "z", "zulu", "etc/utc", "default", "local", "+00", "+00:00", "0"):
        return "UTC" if name.lower() != "gmt" else "GMT"
    if (offset := _OFFSET.fullmatch(name)) is not None:
        # POSIX counts west of Greenwich, a bare number counts east.
        east = (offset["sign"] == "+") != bool(offset["zone"])
        return f"{'+' if east else '-'}{int(offset['hours']):02d}:{offset['minutes'] or '00'}"
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, LookupError):
        raise PostgresError(
            f'invalid value for parameter "TimeZone": "{value}"',
            "22023",
            hint="use the name of a zone, such as Europe/Berlin",
        ) from None


_CHECKS = {
    "client_encoding": _encoding,
    "datestyle": _date_style,
    "intervalstyle": _interval_style,
    "bytea_output": _bytea_output,
    "standard_conforming_strings": _only_on,
    "timezone": _zone,
    "statement_timeout": _time_limit,
}
