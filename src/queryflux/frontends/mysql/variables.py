"""System variables as a MySQL 8.0 client expects them, and those of one session.

Only some mean anything here: ``autocommit``, the time-outs, ``max_execution_time``, ``sql_select_limit``,
``transaction_read_only`` and ``query_tags``. The others are remembered, so that what a client sets it reads
back, and travel in ``Session.extra``. Names that MySQL does not have are remembered too: routing rules and
agents' own keys are set this way.
"""

from collections.abc import Callable, Iterator

from queryflux.model.settings import MYSQL_DEFAULTS as DEFAULTS
from queryflux.model.settings import MYSQL_SYNONYMS, NO_LIMIT, Value, shown
from queryflux.wire.mysql.errors import (
    READ_ONLY_VARIABLE,
    UNKNOWN,
    UNKNOWN_CHARACTER_SET,
    WRONG_VALUE,
    ServerError,
)

MOST_VARIABLES = 1024
MOST_TEXT = 1 << 20
"""Characters of all the values that one client may set."""
UNKNOWN_VARIABLE = 1193
WRONG_TIME_ZONE = 1298

_READ_ONLY_NAMES = """
character_set_system error_count have_openssl have_profiling have_query_cache have_ssl hostname language
license lower_case_file_system lower_case_table_names performance_schema port protocol_version server_uuid
skip_networking socket system_time_zone version version_comment version_compile_machine version_compile_os
warning_count
"""
_READ_ONLY = frozenset(_READ_ONLY_NAMES.split())
_CHARACTER_SETS = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "us-ascii"})
_UTC = frozenset({"utc", "system", "+00:00", "-00:00", "+0:00", "etc/utc", "gmt", "z"})
_ISOLATION = frozenset({"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"})
_REFUSED_MODES = frozenset({"ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT", "ANSI"})
_SWITCHES = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


class SessionVariables:
    """The variables of one session: MySQL's defaults, and what the client has set."""

    def __init__(self, **server: Value) -> None:
        """``server`` overrides defaults, also those that clients may not set."""
        self._server = server
        self._set: dict[str, Value] = {}
        self.user: dict[str, str | int | None] = {}
        """The client's own variables, ``@name``, by lower-case name."""

    def get(self, name: str, *, globally: bool = False) -> Value:
        """The value of ``@@name``. Raises ServerError 1193 for a name nobody has set."""
        name = _canonical(name)
        if not globally and name in self._set:
            return self._set[name]
        if name in self._server:
            return self._server[name]
        if name not in DEFAULTS:
            raise ServerError(UNKNOWN_VARIABLE, f"Unknown system variable '{name}'")
        return DEFAULTS[name]

    def set(self, name: str, value: str | int | None) -> None:
        """Give ``name`` a value as it was written. Raises ServerError."""
        name = _canonical(name)
        if name in _READ_ONLY:
            raise ServerError(READ_ONLY_VARIABLE, f"Variable '{name}' is a read only variable")
        check = _CHECKS.get(name)
        self._set[name] = check(name, value) if check is not None else _like_default(name, value)

    def set_user(self, name: str, value: str | int | None) -> None:
        """Give ``@name`` a value."""
        self.user[name] = value

    def check_size(self) -> None:
        """Raises ServerError 1105 when the client has set too much."""
        kept = (self._set, self.user)
        size = sum(len(name) + len(str(value)) for values in kept for name, value in values.items())
        if sum(map(len, kept)) > MOST_VARIABLES or size > MOST_TEXT:
            raise ServerError(
                UNKNOWN, f"more than {MOST_VARIABLES} variables, or {MOST_TEXT} characters of them, are set"
            )

    def reset(self, name: str) -> None:
        """``SET name = DEFAULT``."""
        name = _canonical(name)
        if name in _READ_ONLY:
            raise ServerError(READ_ONLY_VARIABLE, f"Variable '{name}' is a read only variable")
        self._set.pop(name, None)

    def clear(self) -> None:
        """Forget everything the client has set."""
        self._set.clear()
        self.user.clear()

    def saved(self) -> tuple[dict[str, Value], dict[str, str | int | None]]:
        """What is set now, for ``restore``."""
        return dict(self._set), dict(self.user)

    def restore(self, saved: tuple[dict[str, Value], dict[str, str | int | None]]) -> None:
        """Back to what was saved."""
        self._set, self.user = dict(saved[0]), dict(saved[1])

    def number(self, name: str) -> int:
        """The value of a variable that is always a whole number."""
        value = self._set.get(name)
        return int(value if value is not None else DEFAULTS[name] or 0)

    @property
    def autocommit(self) -> bool:
        """Whether each statement stands for itself."""
        return self._set.get("autocommit", True) is not False

    @property
    def reads_are_transactional(self) -> bool:
        """Whether the client asked for more isolation than statements of their own have."""
        return self._set.get("transaction_isolation") in ("REPEATABLE-READ", "SERIALIZABLE")

    @property
    def read_only(self) -> bool:
        """Whether the client said that it only reads."""
        return self._set.get("transaction_read_only") is True

    def extra(self) -> dict[str, str]:
        """What differs from MySQL's defaults, by the server or by the client, as ``Session.extra`` has it."""
        values = self._server | self._set
        return {name: shown(value) for name, value in values.items() if value is not None}

    def listed(self, *, globally: bool = False) -> Iterator[tuple[str, str]]:
        """Names and values in order, as SHOW VARIABLES gives them."""
        names = {*DEFAULTS, *self._server, *(() if globally else self._set)}
        for name in sorted(names):
            yield name, shown(self.get(name, globally=globally))


def _canonical(name: str) -> str:
    name = name.lower()
    return MYSQL_SYNONYMS.get(name, name)


def _wrong(name: str, value: str | int | None, hint: str = "") -> ServerError:
    spelled = "NULL" if value is None else value
    return ServerError(WRONG_VALUE, f"Variable '{name}' can't be set to the value of '{spelled}'", hint=hint)


def _like_default(name: str, value: str | int | None) -> Value:
    default = DEFAULTS.get(name)
    if isinstance(default, bool):
        switch = _SWITCHES.get(str(value).lower())
        if switch is None:
            raise _wrong(name, value)
        return switch
    if isinstance(default, int):
        return _whole(name, value)
    return value


def _whole(name: str, value: str | int | None) -> int:
    try:
        number = int(value if value is not None else "")
    except ValueError:
        raise _wrong(name, value) from None
    return min(max(number, 0), NO_LIMIT)


def _seconds(name: str, value: str | int | None) -> int:
    return min(max(_whole(name, value), 1), 31_536_000)


def _character_set(name: str, value: str | int | None) -> Value:
    if value is None and name == "character_set_results":
        return None
    spelled = str(value).lower()
    if spelled == "binary" and name != "character_set_client":
        return spelled
    if spelled not in _CHARACTER_SETS:
        raise ServerError(
            UNKNOWN_CHARACTER_SET,
            f"Unknown character set: '{value}'",
            hint="this server speaks UTF-8: connect with utf8mb4",
        )
    return {"utf8": "utf8mb3", "us-ascii": "ascii"}.get(spelled, spelled)


def _collation(name: str, value: str | int | None) -> Value:
    _character_set("character_set_results", str(value).partition("_")[0])
    return str(value).lower()


def _time_zone(name: str, value: str | int | None) -> Value:
    if str(value).lower() not in _UTC:
        raise ServerError(
            WRONG_TIME_ZONE,
            f"Unknown or incorrect time zone: '{value}'",
            hint="times are given in UTC; convert them in the client or in the statement",
        )
    return str(value)


def _isolation(name: str, value: str | int | None) -> Value:
    level = str(value).upper().replace(" ", "-")
    if level not in _ISOLATION:
        raise _wrong(name, value)
    return level


def _sql_mode(name: str, value: str | int | None) -> Value:
    modes = [mode.strip().upper() for mode in str(value or "").split(",") if mode.strip()]
    for mode in modes:
        if mode in _REFUSED_MODES:
            raise _wrong(name, mode, "statements are read in MySQL's default mode")
    return ",".join(dict.fromkeys(modes))


_CHECKS: dict[str, Callable[[str, str | int | None], Value]] = {
    "character_set_client": _character_set,
    "character_set_connection": _character_set,
    "character_set_results": _character_set,
    "collation_connection": _collation,
    "interactive_timeout": _seconds,
    "net_read_timeout": _seconds,
    "net_write_timeout": _seconds,
    "sql_mode": _sql_mode,
    "time_zone": _time_zone,
    "transaction_isolation": _isolation,
    "wait_timeout": _seconds,
}
