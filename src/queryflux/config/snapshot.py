"""What travels: the part of a configuration that every process of a fleet shares, and its revision.

The revision is an xxHash64 over canonical JSON: UTF-8, keys sorted at every level, no white space, fields
equal to their default left out (a field added later changes no revision), whole floats spelled as integers,
other floats as short as they can be, NaN and infinities refused. Secrets count with their value; the JSON
itself is never kept or shown.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import xxhash
from msgspec import Struct, field

from queryflux.config.auth import AuthConfig, AuthorizationConfig
from queryflux.config.catalog import CatalogProvider, NullCatalog
from queryflux.config.clusters import ClusterConfig
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.policy import AccessControlConfig, GuardrailsConfig
from queryflux.config.process import QueryHistoryConfig
from queryflux.config.root import RootConfig
from queryflux.config.routers import Router
from queryflux.config.translation import TranslationConfig
from queryflux.model.secret import Secret


class Snapshot(Struct, frozen=True, rename="camel", kw_only=True):
    """One configuration, without what belongs to a single process (``RootConfig.queryflux``)."""

    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    cluster_groups: Mapping[str, ClusterGroupConfig] = field(default_factory=dict)
    routers: tuple[Router, ...] = ()
    routing_fallback: str = ""
    translation: TranslationConfig = TranslationConfig()
    catalog_provider: CatalogProvider = NullCatalog()
    auth: AuthConfig = AuthConfig()
    authorization: AuthorizationConfig = AuthorizationConfig()
    guardrails: GuardrailsConfig | None = None
    access_control: AccessControlConfig | None = None
    query_history: QueryHistoryConfig = QueryHistoryConfig()


def snapshot_of(config: RootConfig) -> Snapshot:
    """The part of ``config`` that travels."""
    return Snapshot(
        clusters=config.clusters,
        cluster_groups=config.cluster_groups,
        routers=config.routers,
        routing_fallback=config.routing_fallback,
        translation=config.translation,
        catalog_provider=config.catalog_provider,
        auth=config.auth,
        authorization=config.authorization,
        guardrails=config.guardrails,
        access_control=config.access_control,
        query_history=config.queryflux.query_history,
    )


def revision_of(snapshot: Snapshot) -> str:
    """The revision of a snapshot: 16 hex digits, the same in every process. Raises ValueError for NaN,
    infinities and text that is not Unicode."""
    return revision_of_json(_content(snapshot))


def revision_of_json(document: Any) -> str:
    """The revision of generic JSON, unknown fields included. Raises as ``revision_of``."""
    return xxhash.xxh64(canonical_json(document)).hexdigest()


def canonical_json(document: Any) -> bytes:
    """``document`` (dicts, lists and scalars) in the one spelling that is hashed. Raises as
    ``revision_of``."""
    plain = _canonical(document)
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_key(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no place in a configuration")
        return int(value) if value.is_integer() else value
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key of a JSON object is a string, not {type(key).__name__}")
    return key


def _content(value: Any) -> Any:
    """``value`` as generic JSON with defaults left out and secrets in clear: for the hash, nothing else."""
    if isinstance(value, Struct):
        return _struct_content(value)
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: _content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_content(item) for item in value]
    return value


def _struct_content(struct: Struct) -> dict[str, Any]:
    content: dict[str, Any] = {}
    settings = struct.__struct_config__
    if settings.tag_field is not None:
        content[settings.tag_field] = settings.tag
    for item in msgspec.structs.fields(struct):
        value = getattr(struct, item.name)
        if not _is_default(item, value):
            content[item.encode_name] = _content(value)
    return content


def _is_default(item: msgspec.structs.FieldInfo, value: Any) -> bool:
    if item.default is not msgspec.NODEFAULT:
        return bool(value == item.default)
    if item.default_factory is not msgspec.NODEFAULT:
        return bool(value == item.default_factory())
    return False
