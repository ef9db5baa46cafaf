"""One cluster: where an engine is and how to reach it."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from queryflux.config.kinds import AtLeastOne, Bytes, Count
from queryflux.model.secret import Secret

EngineKey = Literal["trino", "duckDb", "postgres", "duckDbHttp", "starRocks", "clickHouse", "athena", "adbc"]
EngineAuthType = Literal["basic", "bearer", "keyPair", "accessKey", "roleArn"]
QueryAuthType = Literal["serviceAccount", "passthrough", "impersonate", "tokenExchange"]


class EngineTls(Struct, frozen=True, rename="camel", kw_only=True):
    """TLS towards an engine. With ``caFile`` absent the system's authorities are used."""

    insecure_skip_verify: bool = False
    """Take any certificate. Anyone between us and the engine can then read everything."""
    ca_file: str | None = None
    """PEM file with the authorities to trust; absent: the system's."""
    server_name: str | None = None
    """Name that the certificate must carry; absent: the host of `endpoint`."""


class EngineAuth(Struct, frozen=True, rename="camel", kw_only=True):
    """The cluster's own credentials. Which fields belong to which ``type`` is checked at load."""

    type: EngineAuthType
    """How the cluster's own account proves itself."""
    username: str | None = None
    """Account name (basic, keyPair)."""
    password: Secret | None = None
    """Password (basic); may be empty."""
    token: Secret | None = None
    """Bearer token (bearer)."""
    private_key_pem: Secret | None = None
    """Private key, PKCS#8 or PKCS#1 PEM (keyPair)."""
    private_key_passphrase: Secret | None = None
    """Passphrase of the private key (keyPair)."""
    access_key_id: str | None = None
    """AWS access key id (accessKey)."""
    secret_access_key: Secret | None = None
    """AWS secret access key (accessKey)."""
    session_token: Secret | None = None
    """AWS session token (accessKey)."""
    role_arn: str | None = None
    """AWS role to assume with the process's own credentials (roleArn)."""
    external_id: str | None = None
    """External id for assuming the role (roleArn)."""


class QueryAuth(Struct, frozen=True, rename="camel", kw_only=True):
    """Whose credentials a query runs with."""

    type: QueryAuthType = "serviceAccount"
    """`serviceAccount`: the cluster's own `auth`, for every user."""
    token_endpoint: str | None = None
    """Token endpoint (tokenExchange, RFC 8693)."""
    client_id: str | None = None
    """Client id (tokenExchange)."""
    client_secret: Secret | None = None
    """Client secret (tokenExchange)."""
    target_audience: str | None = None
    """Audience of the exchanged token (tokenExchange)."""
    scope: str | None = None
    """Scope of the exchanged token (tokenExchange)."""


class ClusterVariant(Struct, frozen=True, rename="camel", kw_only=True):
    """One way of using a cluster, as a runtime cluster of its own named ``<cluster>::<variant>``."""

    name: str
    """Name of the variant; unique in its cluster, without `::`."""
    overrides: Mapping[str, Any] | None = None
    """Keys of the cluster that this variant changes, merged deeply."""
    max_running_queries: Count | None = None
    """Queries at a time; absent: the cluster's value."""


class ClusterConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """One engine: where it is and how to reach it. Which keys belong to which engine is checked at load."""

    engine: EngineKey
    """Which engine this is."""
    enabled: bool = True
    """Whether queries may go there."""
    max_running_queries: Count | None = None
    """Queries at a time; absent: the group's value; 0: none, refused at once."""
    pool_size: AtLeastOne | None = None
    """Connections kept to the engine (postgres); absent: the engine's default."""
    endpoint: str | None = None
    """trino: `http(s)://host:port`; postgres: `host:port` or `postgres://host:port/database`."""
    database: str | None = None
    """Database to connect to (postgres); absent: the endpoint's, else the user's name."""
    database_path: str | None = None
    """Database file (duckDb); absent with `dataPath`: in memory."""
    data_path: str | None = None
    """Folder whose Parquet, CSV and JSON files are the tables, read-only (duckDb)."""
    read_only: bool = False
    """Open `databasePath` for reading only (duckDb)."""
    memory_limit: str | None = None
    """Most memory, such as `4GB` (duckDb); absent: DuckDB's own default."""
    threads: AtLeastOne | None = None
    """Threads (duckDb); absent: one for each core."""
    tls: EngineTls | None = None
    """TLS towards the engine."""
    auth: EngineAuth | None = None
    """The cluster's own credentials; absent: none."""
    query_auth: QueryAuth = QueryAuth()
    """Whose credentials a query runs with."""
    variants: tuple[ClusterVariant, ...] = ()
    """Several runtime clusters out of this one."""
    region: str | None = None
    """AWS region (athena)."""
    s3_output_location: str | None = None
    """Where results are written (athena)."""
    workgroup: str | None = None
    """Workgroup (athena)."""
    catalog: str | None = None
    """Data catalog (athena)."""
    max_wait_secs: Count | None = None
    """Longest wait for an execution (athena)."""
    max_result_buffer_bytes: Bytes | None = None
    """Most bytes of a result held in memory. Results are streamed here, so nothing needs it yet."""
    driver: str | None = None
    """Driver name (adbc)."""
    uri: Secret | None = None
    """Connection string of the driver (adbc)."""
    db_kwargs: Mapping[str, Secret] = field(default_factory=dict)
    """Options of the driver (adbc)."""
    warehouse: str | None = None
    """Snowflake warehouse (adbc)."""
    health_check_query: str | None = None
    """SQL that shows the engine's health (adbc)."""
    reconcile_query: str | None = None
    """SQL of your own that counts the queries which the engine runs: one row with one number."""
