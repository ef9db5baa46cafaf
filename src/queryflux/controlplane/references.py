"""Who refers to a cluster group: every place of a whole configuration (generic JSON) that names one."""

from collections.abc import Callable, Mapping
from typing import Any

from queryflux.config.problems import Path, render_path
from queryflux.config.variants import base_name

Document = dict[str, Any]
Rewrite = Callable[[Path, str], str]
"""Given a place and the group named there, the name that shall stand there."""

_VALUES_OF = {"header": "headerValueToGroup", "userGroup": "userToGroup"}
_RULES = ("queryRegex", "tags")


def rename_group(document: Document, old: str, new: str) -> Document:
    """The configuration with a group renamed wherever it is named, at its old place among the groups."""
    groups = {new if name == old else name: group for name, group in document["clusterGroups"].items()}
    return {
        **rewritten(document, lambda path, name: new if name == old else name),
        "clusterGroups": groups,
    }


def places_of_group(document: Document, group: str) -> list[str]:
    """The paths that name a group."""
    places: list[str] = []

    def note(path: Path, name: str) -> str:
        if name == group:
            places.append(render_path(path))
        return name

    rewritten(document, note)
    return places


def rename_cluster(document: Document, old: str, new: str) -> Document:
    """The configuration with a cluster renamed, also in its groups, and its variants with it."""
    clusters = {new if name == old else name: it for name, it in document["clusters"].items()}
    return _with_members(
        {**document, "clusters": clusters},
        lambda member: new + member[len(old) :] if base_name(member) == old else member,
    )


def without_cluster(document: Document, name: str) -> Document:
    """The configuration without a cluster and its variants, whose groups do without it."""
    clusters = {key: it for key, it in document["clusters"].items() if key != name}
    return _with_members(
        {**document, "clusters": clusters}, lambda member: None if base_name(member) == name else member
    )


def rename_script(document: Document, old: str, new: str) -> Document:
    """The configuration with a script renamed, also where groups list it."""
    scripts = {new if name == old else name: it for name, it in document.get("scripts", {}).items()}
    groups = {
        name: {
            **group,
            "translationScripts": [new if it == old else it for it in group["translationScripts"]],
        }
        if group.get("translationScripts")
        else group
        for name, group in document.get("clusterGroups", {}).items()
    }
    return {**document, "scripts": scripts, "clusterGroups": groups}


def _with_members(document: Document, keep: Callable[[str], str | None]) -> Document:
    groups = {
        name: {**group, "members": [kept for member in group.get("members", []) if (kept := keep(member))]}
        for name, group in document.get("clusterGroups", {}).items()
    }
    return {**document, "clusterGroups": groups} if groups else document


def rewritten(document: Document, rewrite: Rewrite) -> Document:
    """The configuration with ``rewrite`` applied to each name of a group outside ``clusterGroups``. One that
    is not sound is passed over where it is not."""
    result = dict(document)
    if document.get("routingFallback"):
        result["routingFallback"] = rewrite(("routingFallback",), document["routingFallback"])
    if "routers" in document:
        result["routers"] = [
            _passing_over(_router, router, ("routers", at), rewrite)
            for at, router in enumerate(document["routers"])
        ]
    if "catalogProvider" in document:
        provider = document["catalogProvider"]
        result["catalogProvider"] = _passing_over(_catalog, provider, ("catalogProvider",), rewrite)
    for section in ("guardrails", "accessControl"):
        policy = document.get(section)
        groups = policy.get("groups") if isinstance(policy, Mapping) else None
        if groups and isinstance(groups, Mapping):
            here = (section, "groups")
            keyed = {rewrite((*here, name), name): value for name, value in groups.items()}
            result[section] = {**document[section], "groups": keyed}
    return result


def _passing_over(
    of: Callable[[Document, Path, Rewrite], Document], item: Document, path: Path, rewrite: Rewrite
) -> Document:
    """What ``of`` makes of it; itself when it is not built as it has to be, for the checks to complain."""
    try:
        return of(item, path, rewrite)
    except (AttributeError, KeyError, TypeError):
        return item


def _router(router: Document, path: Path, rewrite: Rewrite) -> Document:
    kind = router["type"]
    if kind == "protocolBased":
        named = {key: rewrite((*path, key), name) for key, name in router.items() if key != "type"}
        return {"type": kind, **named}
    if kind in _VALUES_OF:
        key = _VALUES_OF[kind]
        pairs: Mapping[str, str] = router[key]
        return {**router, key: {value: rewrite((*path, key, value), name) for value, name in pairs.items()}}
    if kind in _RULES:
        rules = [_target(rule, (*path, "rules", at), rewrite) for at, rule in enumerate(router["rules"])]
        return {**router, "rules": rules}
    return _target(router, path, rewrite)


def _target(rule: Document, path: Path, rewrite: Rewrite) -> Document:
    name = rule.get("targetGroup")
    return rule if name is None else {**rule, "targetGroup": rewrite((*path, "targetGroup"), name)}


def _catalog(provider: Document, path: Path, rewrite: Rewrite) -> Document:
    result = dict(provider)
    for key in ("primary", "secondary"):
        if key in provider:
            result[key] = _catalog(provider[key], (*path, key), rewrite)
    if provider["type"] == "engineDelegate":
        result["clusterGroup"] = rewrite((*path, "clusterGroup"), provider["clusterGroup"])
    return result
