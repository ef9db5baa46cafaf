"""Functions that catalog queries call, as SQLite runs them: name, result type and what it does.

Those of PostgreSQL answer what a server without comments, defaults, indexes or privileges of its own would
(PostgreSQL documentation, 9.27 and 9.28); a few are the machinery of ``sql.lite``.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from queryflux.metadata.session import SessionValues

Function = Callable[..., Any]

_MAX_SERIES = 100_000


def array_items(text: Any) -> list[str | None]:
    """The items of an array as PostgreSQL writes it: ``{a,"b c",NULL}``. Not an array: no items."""
    if not isinstance(text, str) or not text.startswith("{"):
        return []
    items: list[str | None] = []
    current: list[str] = []
    quoted = seen_quote = escaped = False
    for character in text[1:]:
        if escaped:
            current.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted, seen_quote = not quoted, True
        elif not quoted and character in ",}":
            item = "".join(current)
            if item or seen_quote or character == "," or items:
                items.append(None if item.upper() == "NULL" and not seen_quote else item)
            current, seen_quote = [], False
            if character == "}":
                break
        else:
            current.append(character)
    return items


def array_text(items: Any) -> str:
    """An array as PostgreSQL writes it."""
    return "{" + ",".join(map(_array_item, items)) + "}"


def _array_item(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, list | tuple):
        return array_text(item)
    text = str(item)
    if text and not set(text) & set('{},"\\ ') and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class ArrayAggregate:
    """array_agg; SQLite's protocol for aggregates."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def step(self, item: Any) -> None:
        """Take one value."""
        self._items.append(item)

    def finalize(self) -> str | None:
        """The array."""
        return array_text(self._items)


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    return re2.compile(pattern, options)


def matches(text: Any, pattern: Any, ignore_case: bool = False) -> int | None:
    """Whether a regular expression is found; NULL for NULL. In time linear in the text."""
    if text is None or pattern is None:
        return None
    try:
        return int(_compiled(str(pattern), ignore_case).search(str(text)) is not None)
    except re2.error:
        return 0


def _any_of(value: Any, array: Any) -> int | None:
    if value is None or array is None:
        return None
    return int(str(value) in array_items(array))


def _element(array: Any, index: Any) -> str | None:
    items = array_items(array)
    return items[index] if isinstance(index, int) and 0 <= index < len(items) else None


def _series(start: Any, end: Any) -> str:
    if not isinstance(start, int) or not isinstance(end, int):
        return "[]"
    return json.dumps(list(range(start, min(end, start + _MAX_SERIES) + 1)))


def _size_pretty(size: Any) -> str | None:
    return None if size is None else f"{size} bytes"


def _quote_ident(name: Any) -> str | None:
    if name is None:
        return None
    text = str(name)
    plain = text.replace("_", "a").isalnum() and text == text.lower() and not text[0].isdigit()
    return text if plain else '"' + text.replace('"', '""') + '"'


def _joined(array: Any, separator: Any, null: Any = None) -> str | None:
    if array is None:
        return None
    items = [null if item is None else item for item in array_items(array)]
    return str(separator).join(item for item in items if item is not None)


def _without(array: Any, item: Any) -> str | None:
    return None if array is None else array_text(each for each in array_items(array) if each != item)


def _constant(value: Any) -> Function:
    return lambda *_: value


def plain_functions() -> dict[str, tuple[str, Function]]:
    """Functions that need neither catalog nor session: name to result type and body."""
    table: dict[str, tuple[str, Function]] = {
        "pg_regex": ("bool", matches),
        "pg_iregex": ("bool", lambda text, pattern: matches(text, pattern, True)),
        "pg_any": ("bool", _any_of),
        "pg_element": ("text", _element),
        "pg_json": ("text", lambda array=None: json.dumps(array_items(array))),
        "pg_series": ("text", _series),
        "pg_list": ("text", lambda *items: array_text(items)),
        "array_to_string": ("text", _joined),
        "array_remove": ("text", _without),
        "array_length": ("int4", lambda array, *_: len(array_items(array)) or None),
        "array_upper": ("int4", lambda array, *_: len(array_items(array)) or None),
        "array_lower": ("int4", lambda array, *_: 1 if array_items(array) else None),
        "cardinality": ("int4", lambda array: len(array_items(array))),
        "quote_ident": ("text", _quote_ident),
        "pg_size_pretty": ("text", _size_pretty),
        "pg_encoding_to_char": ("text", lambda number: "UTF8" if number == 6 else ""),
        "pg_is_in_recovery": ("bool", _constant(0)),
        "pg_get_keywords": ("text", _constant(array_text(_KEYWORDS.split()))),
        "json_build_object": (
            "text",
            lambda *pairs: json.dumps(dict(zip(pairs[::2], pairs[1::2], strict=False))),
        ),
        "concat": ("text", lambda *parts: "".join(str(part) for part in parts if part is not None)),
        "left": ("text", lambda text, n: None if text is None else str(text)[:n]),
        "now": ("text", lambda: None),
    }
    for name in _NULL_TEXTS.split():
        table[name] = ("text", _constant(None))
    for name in _TRUE.split():
        table[name] = ("bool", _constant(1))
    for name in _ZEROS.split():
        table[name] = ("int8", _constant(0))
    return table


_KEYWORDS = """
abort access analyse analyze attach backward cache checkpoint class cluster comment concurrently conflict
copy database delimiter detach dictionary discard do encoding enum exclusive explain extension force freeze
function header if ilike immutable index inherit inherits isnull limit listen load lock materialized mode
move nothing notify notnull nowait off offset operator owned owner parser password prepared procedural
publication reassign refresh reindex rename replica reset restrict returning role rule sequence server setof
share show stable storage subscription tablespace temp template truncate type unlisten unlogged vacuum valid
validate verbose volatile
"""
_NULL_TEXTS = """
pg_get_expr pg_get_constraintdef pg_get_indexdef pg_get_viewdef pg_get_functiondef pg_get_function_result
pg_get_function_arguments pg_get_function_identity_arguments pg_get_triggerdef pg_get_ruledef
pg_get_partkeydef pg_get_serial_sequence pg_get_statisticsobjdef_columns obj_description col_description
shobj_description pg_tablespace_location pg_get_partition_constraintdef unnest generate_subscripts
_pg_expandarray inet_server_addr inet_client_addr pg_relation_filepath pg_conf_load_time
pg_postmaster_start_time pg_describe_object aclexplode pg_options_to_table to_regnamespace row_to_json
"""
_TRUE = """
has_table_privilege has_schema_privilege has_database_privilege has_column_privilege
has_any_column_privilege has_function_privilege has_sequence_privilege has_tablespace_privilege
has_type_privilege has_language_privilege has_server_privilege pg_has_role pg_function_is_visible
pg_type_is_visible pg_collation_is_visible pg_opclass_is_visible pg_operator_is_visible
pg_conversion_is_visible pg_ts_config_is_visible pg_statistics_obj_is_visible pg_relation_is_updatable
row_security_active
"""
_ZEROS = """
pg_table_size pg_relation_size pg_total_relation_size pg_indexes_size pg_database_size pg_tablespace_size
pg_backend_pid pg_my_temp_schema pg_relation_is_publishable txid_current inet_server_port inet_client_port
"""


def session_functions(session: Callable[[], SessionValues]) -> dict[str, tuple[str, Function]]:
    """Functions that tell about the client's session; ``session`` gives its values at the time of a call."""

    def current_schemas(implicit: Any = 0) -> str:
        path = [*session().search_path]
        return array_text(["pg_catalog", *path] if implicit else path)

    def current_setting(name: Any, missing_ok: Any = 0) -> str | None:
        return session().setting(str(name))

    def set_config(name: Any, value: Any, local: Any = 0) -> str | None:
        return None if value is None else str(value)

    return {
        "current_database": ("text", lambda: session().database),
        "current_catalog": ("text", lambda: session().database),
        "database": ("text", lambda: session().schema or None),
        "schema": ("text", lambda: session().schema or None),
        "current_schema": ("text", lambda: session().schema or None),
        "current_schemas": ("text", current_schemas),
        "current_user": ("text", lambda: session().current_user),
        "current_role": ("text", lambda: session().user),
        "session_user": ("text", lambda: session().current_user),
        "system_user": ("text", lambda: session().current_user),
        "user": ("text", lambda: session().current_user),
        "version": ("text", lambda: session().version),
        "current_setting": ("text", current_setting),
        "set_config": ("text", set_config),
        "session_variable": ("text", lambda name: session().variable(str(name))),
        "session_catalog": ("text", lambda: session().catalog),
        "connection_id": ("int8", lambda: session().connection_id),
    }
