"""What travels: the part of a configuration that every process of a fleet shares, and its revision.

It travels as the content of a snapshot document (fleet/snapshot.py): sections under their own names,
or where ``PLACES`` puts them. The revision is an xxHash64 over canonical JSON of it: UTF-8, keys sorted at
every level, no white space, fields equal to their default left out (a field added later changes no revision),
whole floats spelled as integers, other floats as short as they can be, NaN and infinities refused. Secrets
count with their value; the canonical JSON itself is never kept or shown.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import xxhash
from msgspec import Struct, field

from queryflux.config.auth import AuthConfig, AuthorizationConfig
from queryflux.config.catalog import CatalogProvider, NullCatalog
from queryflux.config.clusters import ClusterConfig
from queryflux.config.described import fields_of
from queryflux.config.groups import ClusterGroupConfig
from queryflux.config.policy import AccessControlConfig, GuardrailsConfig
from queryflux.config.process import QueryHistoryConfig
from queryflux.config.root import RootConfig
from queryflux.config.routers import Router
from queryflux.config.scripts import ScriptConfig
from queryflux.config.translation import TranslationConfig
from queryflux.config.variants import expanded
from queryflux.model.secret import Secret

SCHEMA_VERSION = 1
"""Of the content. Fields are added, never repurposed; a breaking change is another version."""
CREDENTIALS = "embedded"
"""How credentials travel: with their values, inside the content."""

PLACES: Mapping[str, tuple[str, ...]] = {
    "guardrails": ("settings", "guardrails"),
    "auth": ("settings", "security", "auth"),
    "authorization": ("settings", "security", "authorization"),
    "catalogProvider": ("settings", "catalog"),
    "accessControl": ("settings", "accessControl"),
}
"""Where sections stand in the content, of those that do not stand under their own name."""
GUARD_SCRIPTS = ("settings", "guardScripts")
"""Where those of ``scripts`` stand that are guards."""


class Snapshot(Struct, frozen=True, rename="camel", kw_only=True):
    """One configuration, without what belongs to a single process (``RootConfig.queryflux``)."""

    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    cluster_groups: Mapping[str, ClusterGroupConfig] = field(default_factory=dict)
    routers: tuple[Router, ...] = ()
    routing_fallback: str = ""
    translation: TranslationConfig = TranslationConfig()
    scripts: Mapping[str, ScriptConfig] = field(default_factory=dict)
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
        scripts=config.scripts,
        catalog_provider=config.catalog_provider,
        auth=config.auth,
        authorization=config.authorization,
        guardrails=config.guardrails,
        access_control=config.access_control,
        query_history=config.queryflux.query_history,
    )


def content_of(snapshot: Snapshot) -> dict[str, Any]:
    """What of a snapshot travels, as generic JSON with secrets in clear: never log it. Variants travel as the
    clusters that they are."""
    content: dict[str, Any] = {"schemaVersion": SCHEMA_VERSION, "credentials": CREDENTIALS}
    guards = {name: script for name, script in snapshot.scripts.items() if script.kind == "guard"}
    others = {name: script for name, script in snapshot.scripts.items() if name not in guards}
    clusters = expanded(snapshot.clusters)
    runtime = msgspec.structs.replace(snapshot, clusters=clusters, scripts=others)
    for section, value in document_of(runtime, Secret.reveal).items():
        _put(content, PLACES.get(section, (section,)), value)
    if guards:
        _put(content, GUARD_SCRIPTS, document_of(guards, Secret.reveal))
    return content


def _put(content: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        content = content.setdefault(name, {})
    content[path[-1]] = value


def sections_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a content that was received, under their own names; what this version does not know is
    left out. Raises ValueError when a block around a section is none."""
    sections = {}
    for field_ in fields_of(Snapshot):
        value = _get(content, PLACES.get(field_.encode_name, (field_.encode_name,)))
        if value is not None:
            sections[field_.encode_name] = value
    if (guards := _get(content, GUARD_SCRIPTS)) is not None:
        scripts = sections.setdefault("scripts", {})
        if not isinstance(guards, Mapping) or not isinstance(scripts, Mapping):
            raise ValueError("scripts or settings.guardScripts is not an object")
        sections["scripts"] = {**scripts, **guards}
    return sections


def _get(content: Any, path: tuple[str, ...]) -> Any:
    """What stands there, None where nothing does. Raises as ``sections_of``."""
    for at, name in enumerate(path):
        if not isinstance(content, Mapping):
            raise ValueError(f"{'.'.join(path[:at])} is not an object")
        content = content.get(name, {} if at < len(path) - 1 else None)
    return content


def revision_of(snapshot: Snapshot) -> str:
    """The revision of a snapshot: 16 hex digits, the same in every process. Raises ValueError for NaN,
    infinities and text that is not Unicode."""
    return revision_of_json(content_of(snapshot))


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


def document_of(value: Any, show: Callable[[Secret], str]) -> Any:
    """A struct, or anything in one, as generic JSON with defaults left out; ``show`` writes its secrets.
    With ``Secret.reveal`` the result is for hashing, storing and comparing: never log it or hand it out."""
    if isinstance(value, Struct):
        return _struct_document(value, show)
    if isinstance(value, Secret):
        return show(value)
    if isinstance(value, Mapping):
        return {key: document_of(item, show) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document_of(item, show) for item in value]
    return value


def _struct_document(struct: Struct, show: Callable[[Secret], str]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    settings = struct.__struct_config__
    if settings.tag_field is not None:
        content[settings.tag_field] = settings.tag
    for item in fields_of(type(struct)):
        value = getattr(struct, item.name)
        if not _is_default(item, value):
            content[item.encode_name] = document_of(value, show)
    return content


def _is_default(item: msgspec.structs.FieldInfo, value: Any) -> bool:
    if item.default is not msgspec.NODEFAULT:
        return bool(value == item.default)
    if item.default_factory is not msgspec.NODEFAULT:
        return bool(value == item.default_factory())
    return False
