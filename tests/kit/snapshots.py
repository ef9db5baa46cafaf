"""Any configuration at all, made from the types of the structs: for tests of what must survive a journey.

``snapshots`` gives any; ``tied_snapshots`` gives those whose members, rules and fallback name clusters and
groups that exist, as a database with foreign keys wants them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import msgspec.inspect as mi
from hypothesis import strategies as st

from queryflux.config.clusters import ClusterConfig, ClusterVariant
from queryflux.config.hooks import decode_hook
from queryflux.config.slices import routers_of, rows_of
from queryflux.config.snapshot import Snapshot
from queryflux.config.variants import varied
from queryflux.config.walk import type_of

TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)
NAMES = st.sampled_from(["a", "b", "global", "group:a", "Ünï", "with space", "x.y"]) | TEXT.filter(bool)
MOST = 3
"""Items of a collection."""


def _of(kind: mi.Type) -> st.SearchStrategy[Any]:
    """Generic JSON of a type."""
    if isinstance(kind, mi.Metadata):
        return _of(kind.type)
    if isinstance(kind, mi.UnionType):
        return st.one_of([_of(item) for item in kind.types])
    if isinstance(kind, mi.StructType):
        return st.deferred(lambda: _struct(kind))
    if isinstance(kind, mi.DictType):
        return st.dictionaries(NAMES, _of(kind.value_type), max_size=MOST)
    if isinstance(kind, mi.VarTupleType | mi.ListType):
        return st.lists(_of(kind.item_type), max_size=MOST)
    if isinstance(kind, mi.AnyType):
        return _JSON
    return _scalar(kind)


def _struct(kind: mi.StructType) -> st.SearchStrategy[dict[str, Any]]:
    tag = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
    required = {field.encode_name: _of(field.type) for field in kind.fields if field.required}
    optional = {field.encode_name: _of(field.type) for field in kind.fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: {**tag, **fields})


def _scalar(kind: mi.Type) -> st.SearchStrategy[Any]:
    if isinstance(kind, mi.NoneType):
        return st.none()
    if isinstance(kind, mi.BoolType):
        return st.booleans()
    if isinstance(kind, mi.LiteralType):
        return st.sampled_from(kind.values)
    if isinstance(kind, mi.IntType):
        return st.integers(int(kind.ge or 0), int(kind.le or 2**40))
    if isinstance(kind, mi.FloatType):
        return st.floats(kind.ge or 0, kind.le or 1e9, allow_subnormal=False)
    if isinstance(kind, mi.StrType) and kind.min_length:
        return TEXT.filter(bool)
    assert isinstance(kind, mi.StrType | mi.CustomType), kind
    return TEXT


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e15, 1e15) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
_ANY = _of(type_of(Snapshot))


def snapshots() -> st.SearchStrategy[Snapshot]:
    """Any Snapshot that the types allow, sensible or not."""
    return _ANY.map(_converted)


def tied_snapshots() -> st.SearchStrategy[Snapshot]:
    """Those whose names of clusters and groups exist."""
    return _ANY.map(_tied).map(_converted)


def _converted(document: Mapping[str, Any]) -> Snapshot:
    snapshot = msgspec.convert(document, Snapshot, dec_hook=decode_hook)
    clusters = {name: _varying(cluster) for name, cluster in snapshot.clusters.items()}
    return msgspec.structs.replace(snapshot, clusters=clusters)


def _varying(cluster: ClusterConfig) -> ClusterConfig:
    """Without variants that make no cluster."""
    return msgspec.structs.replace(cluster, variants=tuple(filter(_fits(cluster), cluster.variants)))


def _fits(cluster: ClusterConfig) -> Callable[[ClusterVariant], bool]:
    def fits(variant: ClusterVariant) -> bool:
        try:
            varied(cluster, variant)
        except ValueError:
            return False
        return True

    return fits


def _tied(document: dict[str, Any]) -> dict[str, Any]:
    clusters, groups = list(document.get("clusters", {})), list(document.get("clusterGroups", {}))
    tied = dict(document)
    for group in document.get("clusterGroups", {}).values():
        group["members"] = [to(member) for member in group["members"]] if (to := _chooser(clusters)) else []
    fix_ups = _chooser(list(document.get("scripts", {})))
    for group in document.get("clusterGroups", {}).values():
        named = group.get("translationScripts", [])
        group["translationScripts"] = [fix_ups(name) for name in named] if fix_ups else []
    choose = _chooser(groups)
    if choose is None:
        return {**tied, "routers": [], "routingFallback": ""}
    tied["routers"] = _tied_routers(document.get("routers", []), choose)
    if document.get("routingFallback"):
        tied["routingFallback"] = choose(document["routingFallback"])
    return tied


def _tied_routers(routers: list[dict[str, Any]], choose: Callable[[str], str]) -> list[dict[str, Any]]:
    """Slices of another group become slices of one that exists."""
    rows = [
        row
        if row.target_group is None
        else msgspec.structs.replace(row, target_group=choose(row.target_group))
        for row in rows_of(routers)
    ]
    return routers_of(rows)


def _chooser(names: list[str]) -> Callable[[str], str] | None:
    """The same name for the same word, among those there are."""
    return (lambda word: names[sum(word.encode()) % len(names)]) if names else None
