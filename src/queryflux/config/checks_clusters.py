"""Which settings belong to which engine, and what they must look like."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from queryflux.config.checks import Context
from queryflux.config.clusters import ClusterConfig, ClusterVariant, EngineAuth
from queryflux.config.described import fields_of
from queryflux.config.problems import Path, one_of, show
from queryflux.config.variants import SEPARATOR, unknown_keys, varied
from queryflux.config.walk import file_key

ANY_ENGINE = frozenset(("engine", "enabled", "maxRunningQueries", "queryAuth", "variants"))


class EngineRules(NamedTuple):
    """Keys of ``clusters.<c>`` and types of ``auth`` that an engine has."""

    keys: frozenset[str]
    required: tuple[str, ...]
    auth: tuple[str, ...]


ENGINES: Mapping[str, EngineRules] = {
    "trino": EngineRules(
        frozenset(("endpoint", "tls", "auth", "reconcileQuery")), ("endpoint",), ("basic", "bearer")
    ),
    "postgres": EngineRules(
        frozenset(("endpoint", "database", "tls", "auth", "poolSize", "reconcileQuery")),
        ("endpoint",),
        ("basic",),
    ),
    "duckDb": EngineRules(
        frozenset(("databasePath", "dataPath", "readOnly", "memoryLimit", "threads")), (), ()
    ),
}
"""Engines that exist; the others are refused by name."""

AUTH_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "basic": (("username", "password"), ()),
    "bearer": (("token",), ()),
    "keyPair": (("username", "privateKeyPem"), ("privateKeyPassphrase",)),
    "accessKey": (("accessKeyId", "secretAccessKey"), ("sessionToken",)),
    "roleArn": (("roleArn",), ("externalId",)),
}
"""Required and further keys of ``auth``, by its type."""

_MEMORY = re.compile(r"\d+(\.\d+)?\s*(B|[KMGT]B|[KMGT]iB|%)\Z", re.IGNORECASE)
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(:(\d{1,5}))?\Z")
_NO_FILE = re.compile(r":memory:|[A-Za-z][A-Za-z0-9+.-]+:")
"""How the name of a database begins that is not, or not only, a file: md:, s3:, ..."""
_SSLMODES = ("disable", "require", "verify-ca", "verify-full")
_SSLMODE = re.compile(rf"(sslmode=({'|'.join(_SSLMODES)}))?\Z")
_POSTGRES_SCHEMES = ("postgres", "postgresql")


def check_clusters(context: Context) -> None:
    """Every cluster has what its engine needs, and nothing that belongs to another."""
    for name, cluster in context.config.clusters.items():
        if cluster.variants:
            _check_variants(context, name, cluster)
        elif (rules := ENGINES.get(cluster.engine)) is not None:
            _Cluster(context, ("clusters", name), cluster, rules).check()


def _check_variants(context: Context, name: str, cluster: ClusterConfig) -> None:
    """Their names are usable, and each makes a cluster that has what its engine needs."""
    base: Path = ("clusters", name, "variants")
    seen: set[str] = set()
    for index, variant in enumerate(cluster.variants):
        path = context.reading.item_path(base, index)
        if not variant.name.strip():
            context.reading.problem((*path, "name"), "a name must not be empty")
        elif SEPARATOR in variant.name:
            context.reading.problem((*path, "name"), ":: separates a cluster and its variant", "take another")
        elif variant.name in seen:
            context.reading.problem((*path, "name"), f"there are two variants {show(variant.name)}")
        seen.add(variant.name)
        unknown = list(unknown_keys(variant.overrides or {}))
        for key in unknown:
            context.reading.problem((*path, "overrides", *key), f"no cluster has a key {show(str(key[-1]))}")
        if not unknown:
            _check_varied(context, path, cluster, variant)


def _check_varied(context: Context, path: Path, cluster: ClusterConfig, variant: ClusterVariant) -> None:
    try:
        made = varied(cluster, variant)
    except ValueError as error:
        context.reading.problem((*path, "overrides"), f"the cluster that this makes is not sound: {error}")
        return
    rules = ENGINES.get(made.engine)
    if rules is not None:
        _Cluster(context, (*path, "overrides"), made, rules).check()
    else:
        message = f'not available in this version: this engine "{made.engine}"'
        if "engine" in (variant.overrides or {}):
            context.reading.problem((*path, "overrides", "engine"), message)


class _Cluster:
    def __init__(self, context: Context, path: Path, cluster: ClusterConfig, rules: EngineRules) -> None:
        self._context = context
        self._path = path
        self._cluster = cluster
        self._rules = rules

    def check(self) -> None:
        """Complain about whatever is wrong with this cluster."""
        self._keys()
        if self._cluster.auth is not None and "auth" in self._rules.keys:
            self._auth(self._cluster.auth)
        if self._cluster.engine == "trino":
            self._trino()
        elif self._cluster.engine == "postgres":
            self._postgres()
        else:
            self._duckdb()
        if self._cluster.tls is not None and "tls" in self._rules.keys:
            self._context.readable((*self._path, "tls", "caFile"), self._cluster.tls.ca_file)

    def _problem(self, key: str, message: str, hint: str = "") -> None:
        self._context.reading.problem((*self._path, key), message, hint)

    def _keys(self) -> None:
        given = _given(self._cluster)
        for key in given.keys() - self._rules.keys - ANY_ENGINE - _PROBES:
            owners = [engine for engine, rules in ENGINES.items() if key in rules.keys]
            hint = f"{key} belongs to engine {' or '.join(owners)}" if owners else "remove it"
            self._problem(key, f"engine {self._cluster.engine} has no {key}", hint)
        for key in self._rules.required:
            if not given.get(key) and not self._context.reading.is_broken((*self._path, key)):
                self._problem(key, f"engine {self._cluster.engine} needs {key}")

    def _auth(self, auth: EngineAuth) -> None:
        path = (*self._path, "auth")
        reading = self._context.reading
        if auth.type not in self._rules.auth:
            message = f"engine {self._cluster.engine} has no {auth.type} authentication"
            reading.problem((*path, "type"), message, one_of("", self._rules.auth, "it has"))
            return
        required, further = AUTH_KEYS[auth.type]
        given = _given(auth)
        for key in required:
            written = ((*path, key), (*path, file_key(key)))
            if key not in given and not any(reading.is_broken(place) for place in written):
                reading.problem((*path, key), f"{auth.type} authentication needs {key}")
        for key in given.keys() - {"type", *required, *further}:
            reading.problem((*path, key), f"{auth.type} authentication has no {key}", "remove it")

    def _trino(self) -> None:
        endpoint = self._cluster.endpoint
        if not endpoint:
            return
        url = _url(endpoint)
        if url is None or url.scheme not in ("http", "https") or not url.hostname:
            self._problem("endpoint", "expected http://host:port or https://host:port")
        elif url.username is not None or url.password is not None:
            self._problem("endpoint", "a URL is no place for a password", "put it under auth")
        elif url.path not in ("", "/") or url.query or url.fragment:
            self._problem("endpoint", "expected a host and a port, nothing behind them")
        elif url.scheme == "http" and self._cluster.tls is not None:
            self._problem("tls", "the endpoint is http, without TLS", "write https in the endpoint")

    def _postgres(self) -> None:
        endpoint = self._cluster.endpoint
        if not endpoint:
            return
        if "://" not in endpoint:
            match = _HOST_PORT.match(endpoint)
            if match is None or (match[3] and not 0 < int(match[3]) < 65536):
                self._problem("endpoint", "expected host:port or postgres://host:port/database")
            return
        url = _url(endpoint)
        if url is None or url.scheme not in _POSTGRES_SCHEMES or not url.hostname:
            self._problem("endpoint", "expected host:port or postgres://host:port/database")
        elif url.username is not None or url.password is not None:
            self._problem("endpoint", "a URL is no place for a user and a password", "put them under auth")
        elif url.fragment or not _SSLMODE.match(url.query):
            hint = f"sslmode={', '.join(_SSLMODES)} are the options there are"
            self._problem("endpoint", "the URL has options that are not known", hint)
        elif url.query == "sslmode=disable" and self._cluster.tls is not None:
            self._problem("tls", "the endpoint says sslmode=disable", "keep one")
        elif url.path.strip("/") and self._cluster.database is not None:
            self._problem("database", "the endpoint names a database too", "keep one")

    def _duckdb(self) -> None:
        cluster = self._cluster
        if cluster.database_path is not None and cluster.data_path is not None:
            self._problem("dataPath", "dataPath and databasePath are both set", "keep one")
        if cluster.read_only and not cluster.database_path and not cluster.data_path:
            self._problem("readOnly", "a database in memory cannot be read-only", "set databasePath")
        if cluster.data_path and (reason := self._context.folder(cluster.data_path)):
            message = f"{show(cluster.data_path, 200)}: {reason}; until it is a folder, queries fail"
            self._context.reading.warn((*self._path, "dataPath"), message)
        path = cluster.database_path
        if path and cluster.read_only and not _NO_FILE.match(path) and (reason := self._context.file(path)):
            message = f"{show(path, 200)}: {reason}; until somebody makes it, queries fail: it is read only"
            self._context.reading.warn((*self._path, "databasePath"), message)
        if cluster.memory_limit is not None and not _MEMORY.match(cluster.memory_limit):
            self._problem(
                "memoryLimit", f"{show(cluster.memory_limit)} is not a size", "such as 4GB or 512MiB"
            )


_PROBES = frozenset(("healthCheckQuery", "maxResultBufferBytes"))
"""Keys that are refused by name for every engine."""


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their default, by key."""
    return {
        item.encode_name: value
        for item in fields_of(type(struct))
        if (value := getattr(struct, item.name)) is not None and value != item.default and value != {}
    }


def _url(text: str) -> Any:
    """Its parts; None when it is not a URL."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url
