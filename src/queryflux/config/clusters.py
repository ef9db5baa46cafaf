"""One cluster: where an engine is and how to reach it."""

from msgspec import Struct

from queryflux.model.secret import Secret


class EngineTls(Struct, frozen=True, rename="camel", kw_only=True):
    """TLS towards an engine. With ``caFile`` absent the system's authorities are used."""

    insecure_skip_verify: bool = False
    ca_file: str | None = None
    server_name: str | None = None


class EngineAuth(Struct, frozen=True, rename="camel", kw_only=True):
    """The cluster's own credentials. Which fields belong to which ``type`` is checked at load."""

    type: str
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    private_key_pem: Secret | None = None
    private_key_passphrase: Secret | None = None
    access_key_id: str | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    role_arn: str | None = None
    external_id: str | None = None


class ClusterConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """``clusters.<name>``; engines take what is theirs of it."""

    engine: str
    enabled: bool = True
    max_running_queries: int | None = None
    pool_size: int | None = None
    endpoint: str | None = None
    database: str | None = None
    database_path: str | None = None
    data_path: str | None = None
    read_only: bool = False
    memory_limit: str | None = None
    threads: int | None = None
    tls: EngineTls | None = None
    auth: EngineAuth | None = None
