"""What is corrected for each pair of dialects: one table of transforms, in the order of their use.

The passes at its top go over the tree once each, with the rules of the modules that they name.
"""

from queryflux.sql import formats, moments, patterns, sources, texts, values
from queryflux.sql.clock import duckdb_calls, mysql_clock
from queryflux.sql.fixes import (
    UNBOUNDED_SCALE,
    bare_decimals,
    case_blind_patterns,
    date_arithmetic,
    decimal_division,
    escape_strings,
    extracted_integers,
    integer_division,
    introduced_strings,
    iso_weekdays,
    mysql_functions,
    mysql_weekdays,
    parameters,
    pattern_substrings,
    portable_types,
    rollups,
    simple_intervals,
    sized_casts,
    timestamp_differences,
    trino_weekdays,
    truth_tests,
    unsigned_casts,
    unsized_casts,
)
from queryflux.sql.functions import (
    counted_conditions,
    dates_stay,
    duckdb_functions,
    no_dual,
    parts_by_delimiter,
    whole_differences,
)
from queryflux.sql.naming import trino_names
from queryflux.sql.rewrites import Transform, rewritten

_FROM_POSTGRES = (parameters, escape_strings, portable_types, pattern_substrings)
_FROM_TRINO = (parameters, trino_names)
_FROM_MYSQL = (parameters, introduced_strings, unsized_casts, mysql_functions, mysql_clock, rollups, no_dual)

# What one pass over the tree corrects, by pair.
_POSTGRES_DUCKDB = rewritten(
    patterns.ESCAPED_LIKES,
    patterns.DUCKDB_FROM_POSTGRES,
    moments.DUCKDB_FROM_POSTGRES,
    texts.DUCKDB_FROM_POSTGRES,
    values.DUCKDB_FROM_POSTGRES,
    formats.DUCKDB_FROM_POSTGRES,
    sources.DUCKDB_FROM_POSTGRES,
    calls={**patterns.DUCKDB_CALLS, **texts.DUCKDB_CALLS_OF_POSTGRES},
)
_POSTGRES_TRINO = rewritten(
    patterns.ESCAPED_LIKES,
    patterns.TRINO_FROM_POSTGRES,
    moments.TRINO_FROM_POSTGRES,
    texts.TRINO_FROM_POSTGRES,
    values.TRINO_FROM_POSTGRES,
    formats.TRINO_FROM_POSTGRES,
    sources.TRINO_FROM_POSTGRES,
    calls=patterns.TRINO_CALLS,
)
_MYSQL_DUCKDB = rewritten(
    patterns.ESCAPED_LIKES,
    moments.FROM_MYSQL,
    moments.CUT_CLOCKS,
    texts.DUCKDB_FROM_MYSQL,
    values.DUCKDB_FROM_MYSQL,
    calls=moments.DUCKDB_CALLS_OF_MYSQL,
)
_MYSQL_POSTGRES = rewritten(
    moments.FROM_MYSQL,
    moments.POSTGRES_FROM_MYSQL,
    formats.POSTGRES_FORMATS,
    texts.POSTGRES_FROM_MYSQL,
    values.POSTGRES_FROM_MYSQL,
    calls=moments.POSTGRES_CALLS_OF_MYSQL,
)
_MYSQL_TRINO = rewritten(
    patterns.ESCAPED_LIKES,
    moments.FROM_MYSQL,
    moments.TRINO_FROM_MYSQL,
    texts.TRINO_FROM_MYSQL,
    sources.TRINO_FROM_MYSQL,
    values.TRINO_FROM_MYSQL,
)
_TRINO_DUCKDB = rewritten(
    patterns.DUCKDB_FROM_TRINO,
    moments.DUCKDB_FROM_TRINO,
    texts.DUCKDB_FROM_TRINO,
    sources.DUCKDB_FROM_TRINO,
    formats.DUCKDB_FROM_TRINO,
    calls={**moments.DUCKDB_CALLS_OF_TRINO, **texts.DUCKDB_CALLS_OF_TRINO},
)
_TRINO_POSTGRES = rewritten(
    patterns.UNESCAPED_LIKES,
    patterns.DOLLAR_GROUPS,
    moments.POSTGRES_FROM_TRINO,
    formats.POSTGRES_FORMATS,
    texts.POSTGRES_FROM_TRINO,
    values.POSTGRES_FROM_TRINO,
    sources.POSTGRES_FROM_TRINO,
    calls={**moments.POSTGRES_CALLS_OF_TRINO, **texts.POSTGRES_CALLS_OF_TRINO},
)

FIXES: dict[tuple[str, str], tuple[Transform, ...]] = {
    ("postgres", "duckdb"): (
        *_FROM_POSTGRES,
        _POSTGRES_DUCKDB,
        bare_decimals(*UNBOUNDED_SCALE),
        sized_casts,
        integer_division,
        duckdb_functions,
        duckdb_calls,
    ),
    ("postgres", "trino"): (
        *_FROM_POSTGRES,
        _POSTGRES_TRINO,
        bare_decimals(*UNBOUNDED_SCALE),
        trino_weekdays,
        simple_intervals,
        date_arithmetic,
        case_blind_patterns,
        truth_tests,
    ),
    ("postgres", ""): _FROM_POSTGRES,
    ("trino", "duckdb"): (
        *_FROM_TRINO,
        _TRINO_DUCKDB,
        bare_decimals(38, 0),
        sized_casts,
        integer_division,
        iso_weekdays,
        counted_conditions,
        whole_differences,
        dates_stay,
        duckdb_functions,
        duckdb_calls,
    ),
    ("trino", "postgres"): (
        *_FROM_TRINO,
        _TRINO_POSTGRES,
        bare_decimals(38, 0),
        iso_weekdays,
        extracted_integers,
        dates_stay,
    ),
    ("trino", ""): _FROM_TRINO,
    ("mysql", "duckdb"): (
        *_FROM_MYSQL,
        _MYSQL_DUCKDB,
        bare_decimals(10, 0),
        sized_casts,
        mysql_weekdays,
        parts_by_delimiter,
        whole_differences,
        dates_stay,
        duckdb_functions,
        duckdb_calls,
    ),
    ("mysql", "postgres"): (
        *_FROM_MYSQL,
        _MYSQL_POSTGRES,
        bare_decimals(10, 0),
        unsigned_casts,
        decimal_division,
        mysql_weekdays,
        timestamp_differences,
        extracted_integers,
        dates_stay,
    ),
    ("mysql", "trino"): (*_FROM_MYSQL, _MYSQL_TRINO),
    ("mysql", ""): _FROM_MYSQL,
}
"""By source and target; the target "" stands for every one that has no row of its own."""
MYSQL_FAMILY = frozenset({"mysql", "starrocks", "doris", "singlestore"})
"""Dialects that are written as MySQL's is."""


def fixes_for(source: str, target: str) -> tuple[Transform, ...]:
    """The transforms of a pair of dialects, in order."""
    source = "mysql" if source in MYSQL_FAMILY else source
    return FIXES.get((source, target)) or FIXES.get((source, "")) or (parameters,)
