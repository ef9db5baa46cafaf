"""Clusters, groups and routing as the admin API shows them, and their way back into a configuration.

A record is flat where a file is nested (``allowGroups``), keeps an engine's own settings apart (``config``),
and has every key, also those at their default. Records are made from masked sections.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from queryflux.config.groups import DEFAULT_CAPACITY_WAIT_SECS
from queryflux.config.left_out import LeftOut
from queryflux.config.problems import Problem
from queryflux.config.tables import Tables
from queryflux.controlplane.bodies import Body, Key
from queryflux.controlplane.errors import Refused

CLUSTER = Body(
    "Cluster",
    (
        Key("name", "text", "Name; when it is sent it must be that of the path."),
        Key("engineKey", "text", "Which engine it is: trino, postgres, duckDb.", required=True),
        Key("enabled", "flag", "Whether queries may go there; true unless set."),
        Key("maxRunningQueries", "integer", "Queries at a time; null: the group's value.", nullable=True),
        Key("config", "object", "What the engine needs: endpoint, auth, tls, ..., as in a file."),
        Key("variants", "list", "Runtime clusters made of this one."),
    ),
)
GROUP = Body(
    "Group",
    (
        Key("name", "text", "Name; when it is sent it must be that of the path."),
        Key("members", "texts", "Names of clusters, in order.", required=True),
        Key("id", "integer", "Number in the store, as GET shows it; never changed.", nullable=True),
        Key("leftOutMembers", "texts", "Members that this version does not serve, as GET shows them."),
        Key("enabled", "flag", "Whether queries may go there; true unless set."),
        Key("maxRunningQueries", "integer", "On each member without its own; null: no limit.", nullable=True),
        Key("maxQueuedQueries", "integer", "Queries that may wait; null: no limit.", nullable=True),
        Key("capacityWaitTimeoutSecs", "number", "Longest wait for room."),
        Key("queryTimeoutSecs", "number", "Longest run of a query; null: no limit.", nullable=True),
        Key("idleInTransactionTimeoutSecs", "number", "An idle transaction is rolled back after this."),
        Key("strategy", "object", "How a member is chosen; null: roundRobin.", nullable=True),
        Key("allowGroups", "texts", "User groups that may use it; with allowUsers empty too: everybody."),
        Key("allowUsers", "texts", "Users who may use it."),
        Key("translationScriptIds", "list", "Stored scripts that change translated SQL, by id, in order."),
        Key("defaultTags", "object", "Tags of every query."),
        Key("cache", "object", "Keeping results; null: off.", nullable=True),
        Key("circuitBreaker", "object", "Leaving failing members alone; null: off.", nullable=True),
    ),
)
ROUTING = Body(
    "Routing",
    (
        Key("routingFallback", "text", "Group of queries that no rule matches; empty: the first allowed."),
        Key("routingFallbackGroupId", "integer", "The same by id; it wins over the name.", nullable=True),
        Key("routers", "list", "The rules, in order, as in a file.", required=True),
    ),
)

_CLUSTER_APART = ("engine", "enabled", "maxRunningQueries", "variants")
_OPTIONAL = (
    "maxRunningQueries",
    "maxQueuedQueries",
    "queryTimeoutSecs",
    "strategy",
    "cache",
    "circuitBreaker",
)
_GROUP_DEFAULTS: Mapping[str, Any] = {
    "enabled": True,
    "maxRunningQueries": None,
    "maxQueuedQueries": None,
    "capacityWaitTimeoutSecs": DEFAULT_CAPACITY_WAIT_SECS,
    "queryTimeoutSecs": None,
    "idleInTransactionTimeoutSecs": 60.0,
    "strategy": {"type": "roundRobin"},
    "defaultTags": {},
    "cache": None,
    "circuitBreaker": None,
}


class Ids(NamedTuple):
    """The numbers of rows by name."""

    groups: Mapping[str, int] = {}
    scripts: Mapping[str, int] = {}


def ids_of(tables: Tables) -> Ids:
    """Those that a store has given, also of groups that cannot be read: rules may lead to them."""
    all_groups = (*tables.groups, *tables.entries_unreadable("clusterGroups"))
    groups, scripts = (
        {row.name: row.id for row in rows if row.id is not None} for rows in (all_groups, tables.scripts)
    )
    return Ids(groups, scripts)


def cluster_record(name: str, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one cluster."""
    return {
        "name": name,
        "engineKey": cluster["engine"],
        "enabled": cluster.get("enabled", True),
        "maxRunningQueries": cluster.get("maxRunningQueries"),
        "config": {key: value for key, value in cluster.items() if key not in _CLUSTER_APART},
        "variants": cluster.get("variants", []),
    }


def left_out_record(it: LeftOut, body: Body) -> dict[str, Any]:
    """The record of what is stored and not served: nothing of it is known to be no secret."""
    keys = dict.fromkeys(key.name for key in body.keys)
    return {**keys, "name": it.name, "notServed": it.reason}


def cluster_of(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """The section of one cluster. Raises Refused."""
    _same_name(name, record)
    config = record.get("config") or {}
    if misplaced := [key for key in _CLUSTER_APART if key in config]:
        raise Refused(
            "some keys of config stand beside it",
            problems=[
                Problem(
                    0, 0, f"config.{key}", "does not belong into config", f"set {_outer(key)} beside config"
                )
                for key in misplaced
            ],
        )
    kept = {key: record[key] for key in ("enabled", "maxRunningQueries", "variants") if key in record}
    return {"engine": record["engineKey"], **config, **kept}


def group_record(name: str, group: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    """The record of one group."""
    access = group.get("authorization", {})
    return {
        "id": ids.groups.get(name),
        "name": name,
        "members": group["members"],
        **{key: group.get(key, default) for key, default in _GROUP_DEFAULTS.items()},
        "allowGroups": access.get("allowGroups", []),
        "allowUsers": access.get("allowUsers", []),
        "translationScriptIds": [ids.scripts.get(it) for it in group.get("translationScripts", ())],
    }


def group_of(name: str, record: Mapping[str, Any], scripts: Mapping[str, int]) -> dict[str, Any]:
    """The section of one group; ``scripts`` gives the ids of scripts by name. Raises Refused."""
    _same_name(name, record)
    listed = _names_of(record.get("translationScriptIds") or (), scripts)
    kept = {
        key: value
        for key in ("members", *_GROUP_DEFAULTS)
        if (value := record.get(key)) is not None or (key in record and key not in _OPTIONAL)
    }
    access = {key: record[key] for key in ("allowGroups", "allowUsers") if record.get(key)}
    if listed:
        kept["translationScripts"] = listed
    return {**kept, "authorization": access} if access else kept


def _names_of(ids: Sequence[Any], scripts: Mapping[str, int]) -> list[str]:
    """Raises Refused."""
    names = {number: name for name, number in scripts.items()}
    problems = [
        Problem(
            0, 0, f"translationScriptIds[{at}]", f"there is no script {it!r}", "GET /admin/config/scripts"
        )
        for at, it in enumerate(ids)
        if type(it) is not int or it not in names
    ]
    if problems:
        raise Refused("the body is not what this path takes", problems=problems)
    return [names[it] for it in ids]


def routing_record(document: Mapping[str, Any], groups: Mapping[str, int]) -> dict[str, Any]:
    """Rules and fallback; ``groups`` gives the ids of groups by name."""
    fallback = document.get("routingFallback", "")
    return {
        "routingFallback": fallback,
        "routingFallbackGroupId": groups.get(fallback),
        "routers": document.get("routers", []),
    }


def routing_of(record: Mapping[str, Any], groups: Mapping[str, int]) -> dict[str, Any]:
    """The sections of rules and fallback; ``groups`` as for ``routing_record``. Raises Refused."""
    sections = dict(record)
    number = sections.pop("routingFallbackGroupId", None)
    if number is None:
        return sections
    names = [name for name, group_id in groups.items() if group_id == number]
    if not names:
        problem = Problem(
            0, 0, "routingFallbackGroupId", f"there is no group {number}", "GET /admin/config/groups"
        )
        raise Refused("the body is not what this path takes", problems=[problem])
    return {**sections, "routingFallback": names[0]}


def merged(record: Any, patch: Any) -> Any:
    """``record`` with a merge patch (RFC 7396) applied: null removes, objects merge, the rest replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(record) if isinstance(record, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _same_name(name: str, record: Mapping[str, Any]) -> None:
    if record.get("name", name) != name:
        problem = Problem(0, 0, "name", "is not the name in the path", "PATCH with newName renames")
        raise Refused("the body is not what this path takes", problems=[problem])


def _outer(key: str) -> str:
    return "engineKey" if key == "engine" else key
