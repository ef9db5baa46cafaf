"""Variants of a cluster, as the runtime clusters that they are: ``<cluster>::<variant>``. A cluster that has
variants is none itself."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from queryflux.config.clusters import ClusterConfig, ClusterVariant, EngineAuth, EngineTls, QueryAuth
from queryflux.config.described import fields_of
from queryflux.config.hooks import decode_hook
from queryflux.config.problems import Path
from queryflux.model.secret import Secret

SEPARATOR = "::"
_BLOCKS: Mapping[str, type[Struct]] = {"tls": EngineTls, "auth": EngineAuth, "queryAuth": QueryAuth}


def runtime_name(cluster: str, variant: str) -> str:
    """The name of a variant."""
    return f"{cluster}{SEPARATOR}{variant}"


def base_name(name: str) -> str:
    """The cluster that a runtime name comes from."""
    return name.partition(SEPARATOR)[0]


def runtime_names(clusters: Mapping[str, ClusterConfig]) -> Iterator[str]:
    """The names that groups list."""
    for name, cluster in clusters.items():
        if cluster.variants:
            yield from (runtime_name(name, variant.name) for variant in cluster.variants)
        else:
            yield name


def expanded(clusters: Mapping[str, ClusterConfig]) -> Mapping[str, ClusterConfig]:
    """Every runtime cluster; ``clusters`` itself when none has variants. Raises ValueError for overrides that
    do not fit, which a check has found before."""
    if not any(cluster.variants for cluster in clusters.values()):
        return clusters
    result: dict[str, ClusterConfig] = {}
    for name, cluster in clusters.items():
        if cluster.variants:
            for variant in cluster.variants:
                result[runtime_name(name, variant.name)] = varied(cluster, variant)
        else:
            result[name] = cluster
    return result


def varied(cluster: ClusterConfig, variant: ClusterVariant) -> ClusterConfig:
    """A cluster with the overrides of a variant, merged deeply: objects merge, anything else replaces. Raises
    as ``expanded``."""
    base = msgspec.structs.replace(cluster, variants=())
    document = _merged(msgspec.to_builtins(base, enc_hook=_reveal), variant.overrides or {})
    if variant.max_running_queries is not None:
        document["maxRunningQueries"] = variant.max_running_queries
    try:
        return msgspec.convert(document, ClusterConfig, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def unknown_keys(overrides: Mapping[str, Any]) -> Iterator[Path]:
    """Keys of overrides that no cluster has, or no variant may change."""
    yield from _unknown(overrides, ClusterConfig, ())
    if "variants" in overrides:
        yield ("variants",)


def _unknown(value: Mapping[str, Any], struct: type[Struct], path: Path) -> Iterator[Path]:
    known = {field.encode_name for field in fields_of(struct)}
    for key, item in value.items():
        if key not in known:
            yield (*path, key)
        elif struct is ClusterConfig and key in _BLOCKS and isinstance(item, Mapping):
            yield from _unknown(item, _BLOCKS[key], (key,))


def _merged(base: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in overrides.items():
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, Mapping):
            value = _merged(before, value)
        result[key] = value
    return result


def _reveal(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)  # what msgspec wants to hear of a type that is not ours
