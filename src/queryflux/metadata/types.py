"""One table of types: what an engine calls a column's type, and what each protocol's catalogs call it.

Engines spell types their own way (``DECIMAL(18,3)``, ``timestamp(3) with time zone``, ``BIGINT[]``,
``array(bigint)``); ``parse`` reads them all, by the name around any parenthesis.
"""

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the table. Templates hold ``{p}``, ``{s}`` and ``{n}``: precision, scale and length.

    ``jdbc`` is a constant of java.sql.Types; ``digits`` and ``radix`` are numeric precision as information
    schemas give it.
    """

    postgres: str
    mysql: str
    trino: str
    jdbc: int
    digits: int | None = None
    radix: int | None = None


_BIT = 16
FAMILIES: dict[str, Family] = {
    "bool": Family("bool", "tinyint(1)", "boolean", _BIT),
    "int1": Family("int2", "tinyint", "tinyint", -6, 3, 10),
    "int2": Family("int2", "smallint", "smallint", 5, 5, 10),
    "int4": Family("int4", "int", "integer", 4, 10, 10),
    "int8": Family("int8", "bigint", "bigint", -5, 19, 10),
    "uint1": Family("int2", "tinyint unsigned", "smallint", 5, 3, 10),
    "uint2": Family("int4", "smallint unsigned", "integer", 4, 5, 10),
    "uint4": Family("int8", "int unsigned", "bigint", -5, 10, 10),
    "uint8": Family("numeric", "bigint unsigned", "decimal(20,0)", 3, 20, 10),
    "int16": Family("numeric", "decimal(38,0)", "decimal(38,0)", 3, 38, 10),
    "float4": Family("float4", "float", "real", 7, 24, 2),
    "float8": Family("float8", "double", "double", 8, 53, 2),
    "decimal": Family("numeric", "decimal({p},{s})", "decimal({p},{s})", 3, None, 10),
    "numeric": Family("numeric", "decimal(65,30)", "decimal(38,10)", 3, None, 10),
    "text": Family("text", "longtext", "varchar", 12),
    "varchar": Family("text", "longtext", "varchar", 12),
    "varchar_n": Family("varchar", "varchar({n})", "varchar({n})", 12),
    "char": Family("bpchar", "char({n})", "char({n})", 1),
    "name": Family("name", "varchar(63)", "varchar", 12),
    "bytes": Family("bytea", "longblob", "varbinary", -3),
    "date": Family("date", "date", "date", 91),
    "time": Family("time", "time(6)", "time({p})", 92),
    "timetz": Family("timetz", "time(6)", "time({p}) with time zone", 2013),
    "timestamp": Family("timestamp", "datetime(6)", "timestamp({p})", 93),
    "timestamptz": Family("timestamptz", "timestamp(6)", "timestamp({p}) with time zone", 2014),
    "interval": Family("interval", "varchar(64)", "interval day to second", 1111),
    "interval_ym": Family("interval", "varchar(64)", "interval year to month", 1111),
    "uuid": Family("uuid", "char(36)", "uuid", 1111),
    "json": Family("json", "json", "json", 1111),
    "jsonb": Family("jsonb", "json", "json", 1111),
    "oid": Family("oid", "int unsigned", "bigint", -5, 10, 10),
    "inet": Family("inet", "varchar(45)", "ipaddress", 1111),
    "bit": Family("varbit", "longtext", "varchar", 12),
    "array": Family("_", "json", "array({e})", 2003),
    "nested": Family("text", "json", "{raw}", 2000),
    "other": Family("text", "longtext", "varchar", 12),
}

_NAMES: dict[str, str] = {}
_SPELLINGS = {
    "bool": "boolean bool logical",
    "int1": "tinyint int1",
    "int2": "smallint int2 short smallserial",
    "int4": "integer int int4 signed serial mediumint",
    "int8": "bigint int8 long bigserial",
    "uint1": "utinyint uint1",
    "uint2": "usmallint uint2",
    "uint4": "uinteger uint4",
    "uint8": "ubigint uint64",
    "int16": "hugeint int128 uhugeint uint128 bignum",
    "float4": "real float4",
    "float8": "double float8 float|double precision",
    "decimal": "decimal numeric dec",
    "text": "text string longtext mediumtext tinytext citext clob enum set",
    "varchar": "varchar nvarchar|character varying",
    "char": "char character bpchar nchar",
    "name": "name",
    "bytes": "blob bytea binary varbinary longblob bytes",
    "date": "date",
    "time": "time|time without time zone",
    "timetz": "timetz|time with time zone",
    "timestamp": "timestamp datetime timestamp_s timestamp_ms timestamp_us timestamp_ns"
    "|timestamp without time zone",
    "timestamptz": "timestamptz timestamp_tz|timestamp with time zone",
    "interval": "interval|interval day to second",
    "interval_ym": "|interval year to month",
    "uuid": "uuid",
    "json": "json variant",
    "jsonb": "jsonb",
    "oid": "oid",
    "inet": "inet cidr ipaddress",
    "bit": "bit varbit bitstring|bit varying",
    "nested": "struct map row union record",
}
for _family, _spelling in _SPELLINGS.items():
    _single, _, _long = _spelling.partition("|")
    _NAMES |= dict.fromkeys([*_single.split(), *filter(None, _long.split("|"))], _family)

_PARTS = re.compile(
    r"([^(]*)(?:\((?:(\d+)(?:\s*,\s*(-?\d+))?\s*\))?.*?([a-z ]*)\Z)?", re.IGNORECASE | re.DOTALL
)
_SUFFIX_ARRAY = re.compile(r"(.+)\[\d*\]\s*\Z", re.DOTALL)
_WRAPPED_ARRAY = re.compile(r"(?:array|list)\s*[(<](.+)[)>]\s*\Z", re.IGNORECASE | re.DOTALL)
_DEFAULT_FRACTION = 6
_MAX_VARCHAR = 2147483647


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as an engine spelt it. ``precision`` is that of a decimal, the digits of a fraction of a second
    or the length of a string, as the family has it."""

    family: str
    raw: str
    precision: int | None = None
    scale: int | None = None
    element: "ColumnType | None" = None

    @property
    def row(self) -> Family:
        """Its row of the table."""
        return FAMILIES[self.family]

    @property
    def length(self) -> int | None:
        """Characters of a string type that has a limit."""
        return self.precision if self.family in ("varchar_n", "char") else None

    @property
    def fraction(self) -> int:
        """Digits of a fraction of a second."""
        return _DEFAULT_FRACTION if self.precision is None else self.precision

    @property
    def postgres(self) -> str:
        """Its name in pg_type; that of an array begins with an underscore."""
        if self.element is not None:
            inner = self.element.postgres
            return inner if inner.startswith("_") else f"_{inner}"
        return self.row.postgres

    @property
    def typmod(self) -> int:
        """PostgreSQL's type modifier; -1 for none."""
        if self.family == "decimal" and self.precision is not None:
            return ((self.precision << 16) | (self.scale or 0)) + 4
        return self.length + 4 if self.length is not None else -1

    @property
    def mysql(self) -> str:
        """MySQL's COLUMN_TYPE."""
        return self._fill(self.row.mysql)

    @property
    def mysql_data_type(self) -> str:
        """MySQL's DATA_TYPE: the bare name."""
        return self.mysql.partition("(")[0].partition(" ")[0]

    @property
    def trino(self) -> str:
        """Trino's spelling."""
        return self._fill(self.row.trino)

    def _fill(self, template: str) -> str:
        precision = self.precision
        if self.family in ("time", "timetz", "timestamp", "timestamptz"):
            precision = self.fraction
        return template.format(
            p=38 if precision is None else precision,
            s=self.scale or 0,
            n=1 if self.precision is None else self.precision,
            e=self.element.trino if self.element else "varchar",
            raw=self.raw.lower() if self.raw.lower().startswith(("row(", "map(")) else "varchar",
        )


@lru_cache(maxsize=4096)
def parse(type_name: str) -> ColumnType:
    """The type that an engine spells ``type_name``; family ``other`` when it is not known."""
    text = type_name.strip()
    array = _SUFFIX_ARRAY.match(text) or _WRAPPED_ARRAY.match(text)
    if array:
        return ColumnType("array", text, element=parse(array.group(1)))
    found = _PARTS.match(text)
    if not found:
        return ColumnType("other", text)
    name, first, second, rest = found.groups()
    name = " ".join(f"{name} {rest or ''}".lower().split())
    family = _NAMES.get(name) or _NAMES.get(name.partition(" ")[0], "other")
    precision = int(first) if first else None
    scale = int(second) if second else None
    if name.endswith(" unsigned") and family.startswith("int") and f"u{family}" in FAMILIES:
        family = f"u{family}"
    if family == "varchar" and precision is not None and precision < _MAX_VARCHAR:
        family = "varchar_n"
    if family == "decimal" and precision is None:
        family = "numeric"
    if family == "char" and precision is None:
        precision = 1
    if family not in ("varchar_n", "char", "decimal", "time", "timetz", "timestamp", "timestamptz"):
        precision = scale = None
    return ColumnType(family, text, precision, scale)
