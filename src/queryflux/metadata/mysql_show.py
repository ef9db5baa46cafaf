"""MySQL's SHOW and DESCRIBE, but for those about the connection, which the door answers itself."""

# ruff: noqa: S608  (texts for the catalog in memory; names and values in them are quoted)

from collections.abc import Callable, Sequence

from queryflux.metadata.session import SessionValues
from queryflux.metadata.show import Shown, Words, unquoted
from queryflux.metadata.show import literal as plain_literal
from queryflux.model.errors import EngineError, EngineErrorKind

_SCHEMA = "information_schema"
_EMPTY: dict[str, str] = {
    "TRIGGERS": "Trigger Event Table Statement Timing Created sql_mode Definer character_set_client "
    "collation_connection Database_Collation",
    "EVENTS": "Db Name Definer Time_zone Type Execute_at Interval_value Interval_field Starts Ends Status "
    "Originator:int character_set_client collation_connection Database_Collation",
    "PROCEDURE": "Db Name Type Definer Modified Created Security_type Comment character_set_client "
    "collation_connection Database_Collation",
    "FUNCTION": "Db Name Type Definer Modified Created Security_type Comment character_set_client "
    "collation_connection Database_Collation",
    "PLUGINS": "Name Status Type Library License",
    "PRIVILEGES": "Privilege Context Comment",
    "OPEN": "Database Table In_use:int Name_locked:int",
    "PROFILES": "Query_ID:int Duration Query",
    "BINARY": "Log_name File_size:int Encrypted",
    "MASTER": "File Position:int Binlog_Do_DB Binlog_Ignore_DB Executed_Gtid_Set",
    "SLAVE": "Slave_IO_State Master_Host",
    "REPLICA": "Replica_IO_State Source_Host",
}
_INDEX_COLUMNS = (
    "TABLE_NAME AS `Table`, NON_UNIQUE AS Non_unique, INDEX_NAME AS Key_name, SEQ_IN_INDEX AS Seq_in_index, "
    "COLUMN_NAME AS Column_name, COLLATION AS Collation, CARDINALITY AS Cardinality, SUB_PART AS Sub_part, "
    "PACKED AS Packed, NULLABLE AS `Null`, INDEX_TYPE AS Index_type, COMMENT AS Comment, "
    "INDEX_COMMENT AS Index_comment, IS_VISIBLE AS Visible, EXPRESSION AS Expression"
)
_STATUS_COLUMNS = (
    "TABLE_NAME AS Name, ENGINE AS Engine, VERSION AS Version, ROW_FORMAT AS Row_format, "
    "TABLE_ROWS AS `Rows`, "
    "AVG_ROW_LENGTH AS Avg_row_length, DATA_LENGTH AS Data_length, MAX_DATA_LENGTH AS Max_data_length, "
    "INDEX_LENGTH AS Index_length, DATA_FREE AS Data_free, AUTO_INCREMENT AS Auto_increment, "
    "CREATE_TIME AS Create_time, UPDATE_TIME AS Update_time, CHECK_TIME AS Check_time, "
    "TABLE_COLLATION AS Collation, CHECKSUM AS Checksum, CREATE_OPTIONS AS Create_options, "
    "TABLE_COMMENT AS Comment"
)
_KINDS = frozenset(
    {
        *_EMPTY,
        "DATABASES",
        "SCHEMAS",
        "TABLES",
        "COLUMNS",
        "FIELDS",
        "INDEX",
        "INDEXES",
        "KEYS",
        "CREATE",
        "TABLE",
        "VARIABLES",
        "STATUS",
        "ENGINES",
        "STORAGE",
        "GRANTS",
    }
)
_MODIFIERS = ("FULL", "EXTENDED", "SESSION", "GLOBAL", "LOCAL")
_STATEMENTS = frozenset(
    {"SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "REPLACE", "TABLE", "VALUES", "ANALYZE", "FORMAT"}
    | {"FOR", "("}
)


def knows(upper: Sequence[str]) -> bool:
    """Whether ``select_of`` answers a statement with these first words."""
    if upper[0] == "USE":
        return bool(upper[1])
    if upper[0] != "SHOW":
        return bool(upper[1]) and upper[1] not in _STATEMENTS and upper[2] != "="
    kind = next((word for word in upper[1:4] if word not in _MODIFIERS), "")
    return kind in _KINDS


def select_of(words: Words, values: SessionValues) -> Shown:
    """The SELECT for a statement. Raises InvalidRequest, EngineError (no database selected)."""
    if words.take("USE"):
        return Shown("SELECT 1", database=words.path()[-1])
    if not words.take("SHOW"):
        words.next()
        return _columns(words, values, described=True)
    full = False
    while words.peek() in _MODIFIERS:
        full = words.next().upper() == "FULL" or full
    kind = words.next().upper()
    if kind in ("COLUMNS", "FIELDS"):
        words.take("FROM", "IN")
        return _columns(words, values, full=full)
    if kind == "TABLES":
        return _tables(words, values, full)
    maker = _MAKERS.get(kind)
    if maker is not None:
        return maker(words, values)
    return _empty(kind)


def literal(text: str) -> str:
    """A string literal, in which MySQL reads backslashes."""
    return plain_literal(text.replace("\\", "\\\\"))


def _filtered(sql: str, column: str, words: Words) -> str:
    """``sql`` with LIKE or WHERE as SHOW has them, over its result."""
    if words.take("LIKE"):
        return f"SELECT * FROM ({sql}) AS shown WHERE `{column}` LIKE {words.rest()}"
    if words.take("WHERE"):
        return f"SELECT * FROM ({sql}) AS shown WHERE {words.rest()}"
    return sql


def _database(words: Words, values: SessionValues) -> str:
    if words.take("FROM", "IN"):
        return _meant(words.path()[-1], values)
    return _current(values)


def _meant(name: str, values: SessionValues) -> str:
    """The schema that a written database means."""
    return values.own.get(name.lower(), name)


def _current(values: SessionValues) -> str:
    if not values.schema:
        raise EngineError(
            "No database selected", kind=EngineErrorKind.SCHEMA_NOT_FOUND, number=1046, sqlstate="3D000"
        )
    return values.schema


def _place(path: Sequence[str], values: SessionValues) -> str:
    """The database of a table that is called by ``path``."""
    if len(path) > 1:
        return _meant(path[-2], values) if values.own_qualifies else path[-2]
    return values.schema or values.fallback or _current(values)


def _databases(words: Words, values: SessionValues) -> Shown:
    title, pattern = _titled("Database", words)
    like = f"WHERE SCHEMA_NAME LIKE {pattern} " if pattern else ""
    sql = f"SELECT SCHEMA_NAME AS {title} FROM {_SCHEMA}.schemata {like}ORDER BY 1"
    return Shown(_filtered(sql, "Database", words))


def _titled(column: str, words: Words) -> tuple[str, str]:
    """A column's name, in which MySQL puts the pattern that follows, and that pattern as it was written."""
    pattern = words.rest() if words.take("LIKE") else ""
    title = f"{column} ({unquoted(pattern)})" if pattern else column
    return "`" + title.replace("`", "``") + "`", pattern


def _tables(words: Words, values: SessionValues, full: bool) -> Shown:
    name = words.path()[-1] if words.take("FROM", "IN") else _current(values)
    database = _meant(name, values)
    column = f"Tables_in_{name}"
    title, pattern = _titled(column, words)
    kind = ", TABLE_TYPE AS Table_type" if full else ""
    where = f"TABLE_SCHEMA = {literal(database)}" + (f" AND TABLE_NAME LIKE {pattern}" if pattern else "")
    sql = f"SELECT TABLE_NAME AS {title}{kind} FROM {_SCHEMA}.tables WHERE {where}"
    return Shown(_filtered(f"{sql} ORDER BY 1", column, words), database=database)


def _columns(words: Words, values: SessionValues, full: bool = False, described: bool = False) -> Shown:
    path = words.path()
    name = path[-1]
    explicit = not described and words.peek() in ("FROM", "IN")
    database = _database(words, values) if explicit else _place(path, values)
    collation = "COLLATION_NAME AS Collation, " if full else ""
    comment = ", PRIVILEGES AS Privileges, COLUMN_COMMENT AS Comment" if full else ""
    sql = (
        f"SELECT COLUMN_NAME AS Field, COLUMN_TYPE AS Type, {collation}IS_NULLABLE AS `Null`, "
        "COLUMN_KEY AS `Key`, "
        f"COLUMN_DEFAULT AS `Default`, EXTRA AS Extra{comment} FROM {_SCHEMA}.columns "
        f"WHERE TABLE_SCHEMA = {literal(database)} AND TABLE_NAME = {literal(name)} ORDER BY ORDINAL_POSITION"
    )
    if described and words:
        sql = f"SELECT * FROM ({sql}) AS shown WHERE Field LIKE {literal(words.path()[-1])}"
    return Shown(_filtered(sql, "Field", words), ("", database, name))


def _indexes(words: Words, values: SessionValues) -> Shown:
    words.take("FROM", "IN")
    path = words.path()
    explicit = len(path) == 1 and words.peek() in ("FROM", "IN")
    database = _database(words, values) if explicit else _place(path, values)
    where = f"TABLE_SCHEMA = {literal(database)} AND TABLE_NAME = {literal(path[-1])}"
    sql = f"SELECT {_INDEX_COLUMNS} FROM {_SCHEMA}.statistics WHERE {where}"
    return Shown(_filtered(sql, "Key_name", words), ("", database, path[-1]))


def _create(words: Words, values: SessionValues) -> Shown:
    what = words.next().upper()
    if what in ("DATABASE", "SCHEMA"):
        words.take("IF")
        words.take("NOT")
        words.take("EXISTS")
        name = words.path()[-1]
        text = literal(f"CREATE DATABASE `{name}` /*!40100 DEFAULT CHARACTER SET utf8mb4 */")
        return Shown(f"SELECT {literal(name)} AS `Database`, {text} AS `Create Database`")
    path = words.path()
    database = _place(path, values)
    return Shown("", ("", database, path[-1]), create=True)


def _table_status(words: Words, values: SessionValues) -> Shown:
    words.take("STATUS")
    database = _database(words, values)
    sql = (
        f"SELECT {_STATUS_COLUMNS} FROM {_SCHEMA}.tables WHERE TABLE_SCHEMA = {literal(database)} ORDER BY 1"
    )
    return Shown(_filtered(sql, "Name", words))


def _variables(words: Words, values: SessionValues) -> Shown:
    sql = (
        "SELECT VARIABLE_NAME AS Variable_name, VARIABLE_VALUE AS Value "
        "FROM performance_schema.session_variables ORDER BY 1"
    )
    return Shown(_filtered(sql, "Variable_name", words))


def _status(words: Words, values: SessionValues) -> Shown:
    sql = (
        "SELECT VARIABLE_NAME AS Variable_name, VARIABLE_VALUE AS Value "
        "FROM performance_schema.session_status ORDER BY 1"
    )
    return Shown(_filtered(sql, "Variable_name", words))


def _engines(words: Words, values: SessionValues) -> Shown:
    words.take("ENGINES")
    return Shown(
        "SELECT ENGINE AS Engine, SUPPORT AS Support, COMMENT AS Comment, TRANSACTIONS AS Transactions, "
        f"XA, SAVEPOINTS AS Savepoints FROM {_SCHEMA}.engines"
    )


def _grants(words: Words, values: SessionValues) -> Shown:
    user, _, host = values.current_user.rpartition("@")
    grant = literal(f"GRANT SELECT ON *.* TO `{user}`@`{host}`")
    return Shown(f"SELECT {grant} AS `Grants for {user}@{host}`")


def _empty(kind: str) -> Shown:
    columns = []
    for column in _EMPTY[kind].split():
        name, _, number = column.partition(":")
        columns.append(f"CAST(NULL AS {'SIGNED' if number else 'CHAR'}) AS `{name}`")
    return Shown(f"SELECT {', '.join(columns)} FROM {_SCHEMA}.statistics")


_MAKERS: dict[str, Callable[[Words, SessionValues], Shown]] = {
    "DATABASES": _databases,
    "SCHEMAS": _databases,
    "INDEX": _indexes,
    "INDEXES": _indexes,
    "KEYS": _indexes,
    "CREATE": _create,
    "TABLE": _table_status,
    "VARIABLES": _variables,
    "STATUS": _status,
    "ENGINES": _engines,
    "STORAGE": _engines,
    "GRANTS": _grants,
}
