"""What operators see of the stored configuration: records, also of what is stored and not served."""

from collections.abc import Mapping
from typing import Any

from queryflux.config.left_out import ROUTERS, SECURITY
from queryflux.config.problems import one_of, show
from queryflux.controlplane.bodies import Body
from queryflux.controlplane.edits import Current
from queryflux.controlplane.errors import NotThere, StoredUnsound
from queryflux.controlplane.records import (
    CLUSTER,
    GROUP,
    cluster_record,
    group_record,
    left_out_record,
    routing_record,
)
from queryflux.controlplane.references import Document

SETTINGS = (
    "translation",
    "queryHistory",
    "catalogProvider",
    "auth",
    "authorization",
    "guardrails",
    "accessControl",
)
"""Sections that are one value each."""


def clusters(current: Current) -> list[dict[str, Any]]:
    """Every cluster's record, those last that are not served."""
    records = [cluster_record(name, cluster) for name, cluster in current.shown["clusters"].items()]
    return [*records, *(left_out_record(it, CLUSTER) for it in current.entries_left_out("clusters"))]


def cluster(current: Current, name: str) -> dict[str, Any]:
    """One cluster's record, also of one that is not served. Raises NotThere."""
    return _left_out(current, "clusters", name, CLUSTER) or served_cluster(current, name)


def groups(current: Current) -> list[dict[str, Any]]:
    """Every group's record, those last that cannot be read."""
    records = [served_group(current, name) for name in current.shown["clusterGroups"]]
    return [*records, *(left_out_record(it, GROUP) for it in current.entries_left_out("clusterGroups"))]


def group(current: Current, name: str) -> dict[str, Any]:
    """One group's record, also of one that cannot be read. Raises NotThere."""
    return _left_out(current, "clusterGroups", name, GROUP) or served_group(current, name)


def routing(current: Current) -> dict[str, Any]:
    """Rules and fallback. Raises StoredUnsound."""
    check_section(current, ROUTERS)
    return routing_record(current.shown, current.ids.groups)


def settings(current: Current) -> dict[str, Any]:
    """All of SETTINGS; null for what cannot be read."""
    broken = {it.section for it in current.left_out if not it.name}
    return {name: None if stored_in(name) in broken else current.shown.get(name, {}) for name in SETTINGS}


def setting(current: Current, name: str) -> Any:
    """One section of SETTINGS. Raises NotThere, StoredUnsound."""
    known_setting(name)
    check_section(current, stored_in(name))
    return current.shown.get(name, {})


def _left_out(current: Current, section: str, name: str, body: Body) -> dict[str, Any] | None:
    found = (it for it in current.entries_left_out(section) if it.name == name)
    return next((left_out_record(it, body) for it in found), None)


def served_cluster(current: Current, name: str) -> dict[str, Any]:
    """The record of a cluster to be edited. Raises NotThere, NotServed."""
    current.check_served("clusters", name)
    return cluster_record(name, _named(current.shown, "clusters", "cluster", name))


def served_group(current: Current, name: str) -> dict[str, Any]:
    """The record of a group to be edited. Raises NotThere, NotServed."""
    current.check_served("clusterGroups", name)
    group = _named(current.shown, "clusterGroups", "cluster group", name)
    record = group_record(name, group, current.ids)
    members = current.members_left_out(name)
    return {**record, "leftOutMembers": members} if members else record


def _named(document: Document, section: str, what: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = document[section].get(name)
    if found is None:
        raise NotThere(f"there is no {what} {show(name)}", hint=one_of(name, document[section]))
    return found


def stored_in(setting: str) -> str:
    """The section whose row a setting stands in."""
    return SECURITY if setting == "authorization" else setting


def check_section(current: Current, section: str) -> None:
    """Raises StoredUnsound where a section cannot be read."""
    if found := [it.problem for it in current.entries_left_out(section) if not it.name]:
        raise StoredUnsound("what is stored here cannot be read", hint="PUT it anew", problems=found)


def known_setting(name: str) -> None:
    """Raises NotThere."""
    if name not in SETTINGS:
        raise NotThere(f"there is no setting {show(name)}", hint=one_of(name, SETTINGS, "settings"))
