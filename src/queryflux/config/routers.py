"""``routers``: rules in order; the first that names a group, or denies, wins."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

ProtocolKey = Literal[
    "trinoHttp",
    "postgresWire",
    "mysqlWire",
    "clickhouseHttp",
    "flightSql",
    "snowflakeHttp",
    "snowflakeSqlApi",
    "mcp",
]


class ProtocolBasedRouter(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="protocolBased"
):
    """A group for each client protocol; a key that is absent does not match."""

    trino_http: str | None = None
    """Group for Trino HTTP clients."""
    postgres_wire: str | None = None
    """Group for PostgreSQL clients."""
    mysql_wire: str | None = None
    """Group for MySQL clients."""
    clickhouse_http: str | None = None
    """Group for ClickHouse clients."""
    flight_sql: str | None = None
    """Group for Flight SQL clients."""
    snowflake_http: str | None = None
    """Group for Snowflake wire v1 clients."""
    snowflake_sql_api: str | None = None
    """Group for Snowflake SQL API clients."""
    mcp: str | None = None
    """Group for agents."""

    def groups(self) -> dict[str, str]:
        """Group by protocol key, of the protocols that have one."""
        pairs = {
            "trinoHttp": self.trino_http,
            "postgresWire": self.postgres_wire,
            "mysqlWire": self.mysql_wire,
            "clickhouseHttp": self.clickhouse_http,
            "flightSql": self.flight_sql,
            "snowflakeHttp": self.snowflake_http,
            "snowflakeSqlApi": self.snowflake_sql_api,
            "mcp": self.mcp,
        }
        return {protocol: group for protocol, group in pairs.items() if group is not None}


class HeaderRouter(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="header"):
    """The exact value of one HTTP header; the header's name in any case."""

    header_name: str
    """Name of the header."""
    header_value_to_group: Mapping[str, str]
    """Group for each value."""


class UserGroupRouter(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="userGroup"):
    """A group for each user."""

    user_to_group: Mapping[str, str]
    """Group for each user name."""


class QueryRegexRule(Struct, frozen=True, rename="camel", kw_only=True):
    """One pattern over the text of a query (RE2 syntax, found anywhere in the text)."""

    regex: str
    """The pattern."""
    target_group: str | None = None
    """Group of queries that match; needed for `route`."""
    action: Literal["route", "deny"] = "route"
    """What happens to a query that matches."""
    error: str | None = None
    """What the client is told when it is denied."""


class QueryRegexRouter(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="queryRegex"):
    """Patterns over the text; the first rule that matches wins."""

    rules: tuple[QueryRegexRule, ...]
    """The rules, in order."""


class TagsRule(Struct, frozen=True, rename="camel", kw_only=True):
    """Tags that must all hold."""

    tags: Mapping[str, str | None]
    """Key and value that a query must carry; `null`: the key with any value or none."""
    target_group: str
    """Group of queries that match."""


class TagsRouter(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="tags"):
    """Tags of the client; the first rule that matches wins."""

    rules: tuple[TagsRule, ...]
    """The rules, in order."""


class PythonRouter(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="pythonScript"):
    """A script chooses: `route(query, ctx)` gives a group or None."""

    script: str = ""
    """The script itself; may be empty with `scriptFile`."""
    script_file: str | None = None
    """File with the script, read when the configuration is; wins over `script`. In files only."""


class ProtocolCondition(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="protocol"):
    """The client speaks this protocol."""

    protocol: ProtocolKey
    """The protocol."""


class HeaderCondition(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="header"):
    """An HTTP header has exactly this value."""

    header_name: str
    """Name of the header, in any case."""
    header_value: str
    """Its value."""


class UserCondition(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="user"):
    """The user has exactly this name."""

    username: str
    """The name."""


class ClientTagCondition(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="clientTag"
):
    """Trino's X-Trino-Client-Tags contain this tag."""

    tag: str
    """The tag."""


class QueryRegexCondition(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="queryRegex"
):
    """A pattern is found in the text of the query."""

    regex: str
    """The pattern, RE2 syntax."""


Condition = ProtocolCondition | HeaderCondition | UserCondition | ClientTagCondition | QueryRegexCondition


class CompoundRouter(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="compound"):
    """Several conditions, all or any of which must hold."""

    combine: Literal["all", "any"]
    """Whether every condition must hold, or one."""
    conditions: tuple[Condition, ...]
    """The conditions; at least one."""
    target_group: str
    """Group of queries that match."""


Router = (
    ProtocolBasedRouter
    | HeaderRouter
    | UserGroupRouter
    | QueryRegexRouter
    | TagsRouter
    | PythonRouter
    | CompoundRouter
)
