"""``catalogProvider``: where table schemas come from."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from queryflux.config.kinds import AtLeastOne, Count
from queryflux.model.secret import Secret


class CatalogCache(Struct, frozen=True, rename="camel", kw_only=True):
    """Keeping what a catalog said."""

    ttl_seconds: Count = 300
    """How long an answer is good for."""
    max_entries: AtLeastOne = 10000
    """How many answers are kept."""


class CatalogColumn(Struct, frozen=True, rename="camel", kw_only=True):
    """A column of a static table."""

    name: str
    """Its name."""
    data_type: str
    """Its type."""
    nullable: bool = True
    """Whether it may be null."""


class CatalogTable(Struct, frozen=True, rename="camel", kw_only=True):
    """A static table."""

    catalog: str = ""
    """Its catalog."""
    database: str = ""
    """Its database."""
    columns: tuple[CatalogColumn, ...]
    """Its columns."""


class CatalogAuth(Struct, frozen=True, rename="camel", kw_only=True):
    """How we prove ourselves to AWS Glue."""

    type: Literal["accessKey", "roleArn"]
    """How."""
    access_key_id: str | None = None
    """AWS access key id (accessKey)."""
    secret_access_key: Secret | None = None
    """AWS secret access key (accessKey)."""
    session_token: Secret | None = None
    """AWS session token (accessKey)."""
    role_arn: str | None = None
    """AWS role to assume (roleArn)."""
    external_id: str | None = None
    """External id for assuming it (roleArn)."""


class ClientCredentials(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="oauth2ClientCredentials"
):
    """OAuth 2 client credentials."""

    client_id: str
    """Client id."""
    client_secret: Secret
    """Client secret."""


class BearerToken(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="bearerToken"):
    """A fixed bearer token."""

    token: Secret
    """The token."""


class NullCatalog(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="null"):
    """No schemas."""


class StaticCatalog(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="static"):
    """Schemas written in the configuration."""

    tables: Mapping[str, CatalogTable]
    """Table by its unqualified name."""


class GlueCatalog(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="glue"):
    """AWS Glue."""

    region: str | None = None
    """AWS region."""
    auth: CatalogAuth | None = None
    """How we prove ourselves; absent: the process's own AWS credentials."""
    cache: CatalogCache | None = None
    """Keep answers; absent: off."""


class HiveCatalog(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="hiveMetastore"):
    """A Hive metastore."""

    uri: str
    """`thrift://host:port`."""
    cache: CatalogCache | None = None
    """Keep answers; absent: off."""


class IcebergCatalog(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="icebergRest"):
    """An Iceberg REST catalog."""

    uri: str
    """Address of the catalog."""
    catalog_name: str
    """Name that the catalog has in queries."""
    warehouse: str | None = None
    """Warehouse to ask for."""
    auth: ClientCredentials | BearerToken | None = None
    """How we prove ourselves; absent: not at all."""
    cache: CatalogCache | None = None
    """Keep answers; absent: off."""


class FallbackCatalog(Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="fallback"):
    """One catalog, and another for what the first does not know."""

    primary: "CatalogProvider"
    """Asked first."""
    secondary: "CatalogProvider"
    """Asked when the first fails or does not know a table."""


class EngineCatalog(
    Struct, frozen=True, rename="camel", kw_only=True, tag_field="type", tag="engineDelegate"
):
    """The engine's own schemas."""

    cluster_group: Annotated[str, Meta(min_length=1)]
    """Group whose engine is asked."""
    cache: CatalogCache | None = None
    """Keep answers; absent: off."""


CatalogProvider = (
    NullCatalog | StaticCatalog | GlueCatalog | HiveCatalog | IcebergCatalog | FallbackCatalog | EngineCatalog
)
