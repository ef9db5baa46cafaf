"""A Snapshot as rows, and rows as the document of a Snapshot (generic JSON, secrets in clear).

Clusters and groups are the rows' alone once a file's have been seeded. Everything else stands in the file
until it is stored; from then on the row counts.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from queryflux.config.left_out import CLUSTERS, SECURITY, left_out
from queryflux.config.slices import routers_of, rows_of
from queryflux.config.snapshot import Snapshot, document_of
from queryflux.config.tables import ClusterRow, GroupRow, RoutingRow, ScriptRow, Tables, Unreadable
from queryflux.config.variants import base_name
from queryflux.model.secret import Secret

SETTINGS = {
    "translation": "translation_config",
    "catalogProvider": "catalog_config",
    "accessControl": "access_control_config",
    "queryHistory": "query_history_config",
}
"""Sections that are one value each: their key in ``proxy_settings``."""

_SECURITY = (
    ("auth_provider", "auth", "provider"),
    ("auth_required", "auth", "required"),
    ("allow_plaintext_credentials", "auth", "allowPlaintextCredentials"),
    ("static_users", "auth", "staticUsers"),
    ("oidc", "auth", "oidc"),
    ("ldap", "auth", "ldap"),
    ("operator_roles", "auth", "operatorRoles"),
    ("operator_groups", "auth", "operatorGroups"),
    ("authorization_provider", "authorization", "provider"),
    ("openfga", "authorization", "openfga"),
)
"""Keys of ``security_settings.config``, and where each stands in a document."""

_GLOBAL = "global"
_GROUP = "group:"
SECTIONS = frozenset(
    ("clusters", "clusterGroups", "scripts", "routers", "auth", "authorization", "guardrails", *SETTINGS)
)
"""What can be stored by itself; ``routers`` includes ``routingFallback``."""


def updated(
    tables: Tables,
    snapshot: Snapshot,
    sections: Collection[str] = SECTIONS,
    renamed: Mapping[str, str] | None = None,
    replaced: Iterable[Unreadable] = (),
) -> Tables:
    """``tables`` with these sections of ``snapshot`` in place of its own. A cluster, group or script keeps
    its id by name; ``renamed`` gives the old name of one that has a new one, ``replaced`` are rows that were
    not among ``tables`` for nobody could read them. What ``document_over`` leaves out of a document stays in
    the tables: a newer version's clusters outlive an edit by this one."""
    document = document_of(snapshot, Secret.reveal)
    strange = _strange(tables)
    old_names = renamed or {}
    spare = {(row.section, row.name): row.id for row in replaced}
    changes: dict[str, Any] = {}
    if "clusters" in sections:
        ids = {row.name: row.id for row in tables.clusters} | _ids_in(spare, "clusters")
        items = document.get("clusters", {}).items()
        rows = [cluster_row(name, item, ids.get(old_names.get(name, name))) for name, item in items]
        new = document.get("clusters", {})
        kept = [row for row in tables.clusters if row.name in strange and row.name not in new]
        changes["clusters"] = _in_order([*rows, *kept])
    if "scripts" in sections:
        ids = {row.name: row.id for row in tables.scripts} | _ids_in(spare, "scripts")
        scripts = document.get("scripts", {}).items()
        changes["scripts"] = _in_order(
            script_row(name, item, ids.get(old_names.get(name, name))) for name, item in scripts
        )
    if "clusterGroups" in sections:
        known = {row.name: row for row in tables.groups} | {
            name: GroupRow(id=row_id, name=name) for name, row_id in _ids_in(spare, "clusterGroups").items()
        }
        groups = document.get("clusterGroups", {}).items()
        changes["groups"] = _in_order(
            _with_strange(group_row(name, item, row), row, strange)
            for name, item in groups
            for row in [known.get(old_names.get(name, name))]
        )
    if "routers" in sections:
        changes["rules"] = rows_of(document.get("routers", ()))
        changes["routing"] = RoutingRow(fallback=snapshot.routing_fallback, active=True)
    if "auth" in sections or "authorization" in sections:
        changes["security"] = security_of(document)
    if "guardrails" in sections:
        changes["guardrails"] = _guards(document.get("guardrails"))
    values = {
        key: document.get(section, _default(section))
        for section, key in SETTINGS.items()
        if section in sections
    }
    return replace(tables, settings={**tables.settings, **values}, **changes)


def seeded(tables: Tables, snapshot: Snapshot) -> Tables:
    """``tables`` with the clusters, groups and scripts of a file that they do not have yet; the same object
    when there are none."""
    document = document_of(snapshot, Secret.reveal)
    known = {row.name for row in tables.clusters}
    clusters = [
        cluster_row(name, item, None)
        for name, item in document.get("clusters", {}).items()
        if name not in known
    ]
    known = {row.name for row in tables.groups}
    groups = [
        group_row(name, item, None)
        for name, item in document.get("clusterGroups", {}).items()
        if name not in known
    ]
    known = {row.name for row in tables.scripts}
    scripts = [
        script_row(name, item, None)
        for name, item in document.get("scripts", {}).items()
        if name not in known
    ]
    if not clusters and not groups and not scripts:
        return tables
    return replace(
        tables,
        clusters=(*tables.clusters, *clusters),
        groups=(*tables.groups, *groups),
        scripts=(*tables.scripts, *scripts),
    )


def document_over(tables: Tables, file: Snapshot) -> tuple[dict[str, Any], list[str]]:
    """The whole document that rows and the rest of a file make together, and what had to be left out of it:
    clusters of an engine that this version has never heard of."""
    rest = replace(file, clusters={}, cluster_groups={}, scripts={})
    document: dict[str, Any] = document_of(rest, Secret.reveal)
    strange = _strange(tables)
    known = [row for row in tables.clusters if row.name not in strange]
    document["clusters"] = {row.name: cluster_document(row) for row in known}
    document["clusterGroups"] = {row.name: group_document(row, strange) for row in tables.groups}
    if tables.scripts:
        document["scripts"] = {row.name: script_document(row) for row in tables.scripts}
    if tables.routing.active:
        document["routers"] = routers_of(tables.rules)
        document["routingFallback"] = tables.routing.fallback
    if tables.security:
        document.update(identity_of(tables.security))
    if tables.entries_unreadable(SECURITY):
        document = {key: it for key, it in document.items() if key not in ("auth", "authorization")}
    if tables.guardrails:
        document["guardrails"] = _guardrails(tables.guardrails)
    for section, key in SETTINGS.items():
        if key in tables.settings:
            document[section] = tables.settings[key]
    return document, [it.said for it in left_out(tables)]


def cluster_row(name: str, document: Mapping[str, Any], row_id: int | None) -> ClusterRow:
    """The row of a cluster."""
    rest = dict(document)
    return ClusterRow(
        id=row_id,
        name=name,
        engine_key=rest.pop("engine"),
        enabled=rest.pop("enabled", True),
        max_running_queries=rest.pop("maxRunningQueries", None),
        variants=tuple(rest.pop("variants", ())),
        config=rest,
    )


def cluster_document(row: ClusterRow) -> dict[str, Any]:
    """The cluster of a row."""
    document = {**row.config, "engine": row.engine_key, "enabled": row.enabled}
    if row.max_running_queries is not None:
        document["maxRunningQueries"] = row.max_running_queries
    if row.variants:
        document["variants"] = list(row.variants)
    return document


_GROUP_COLUMNS = (
    ("max_running_queries", "maxRunningQueries"),
    ("max_queued_queries", "maxQueuedQueries"),
    ("strategy", "strategy"),
    ("capacity_wait_timeout_secs", "capacityWaitTimeoutSecs"),
    ("circuit_breaker", "circuitBreaker"),
    ("cache", "cache"),
)
"""Columns of a group that are null when the group has no such key."""


def group_row(name: str, document: Mapping[str, Any], known: GroupRow | None) -> GroupRow:
    """The row of a group; ``known`` is the one it replaces."""
    rest = dict(document)
    access = rest.pop("authorization", {})
    columns = {column: rest.pop(key, None) for column, key in _GROUP_COLUMNS}
    return GroupRow(
        id=known.id if known is not None else None,
        name=name,
        members=tuple(rest.pop("members")),
        enabled=rest.pop("enabled", True),
        allow_groups=tuple(access.get("allowGroups", ())),
        allow_users=tuple(access.get("allowUsers", ())),
        translation_scripts=tuple(rest.pop("translationScripts", ())),
        default_tags=rest.pop("defaultTags", {}),
        settings=rest,
        **columns,
    )


def group_document(row: GroupRow, strange: Collection[str] = ()) -> dict[str, Any]:
    """The group of a row, without members of clusters that were left out."""
    document: dict[str, Any] = {
        **row.settings,
        "members": [member for member in row.members if base_name(member) not in strange],
        "enabled": row.enabled,
        "authorization": {"allowGroups": list(row.allow_groups), "allowUsers": list(row.allow_users)},
        "defaultTags": dict(row.default_tags),
    }
    for column, key in _GROUP_COLUMNS:
        value = getattr(row, column)
        if value is not None:
            document[key] = value
    if row.translation_scripts:
        document["translationScripts"] = list(row.translation_scripts)
    return document


def script_row(name: str, document: Mapping[str, Any], row_id: int | None) -> ScriptRow:
    """The row of a script."""
    description = document.get("description", "")
    return ScriptRow(
        id=row_id, name=name, kind=document["kind"], body=document["body"], description=description
    )


def script_document(row: ScriptRow) -> dict[str, Any]:
    """The script of a row."""
    document = {"kind": row.kind, "body": row.body}
    return {**document, "description": row.description} if row.description else document


def _ids_in(spare: Mapping[tuple[str, str], int | None], section: str) -> dict[str, int | None]:
    return {name: row_id for (where, name), row_id in spare.items() if where == section}


def _strange(tables: Tables) -> frozenset[str]:
    """Names of clusters that no document can have."""
    return frozenset(it.name for it in left_out(tables) if it.section == CLUSTERS)


def _with_strange(row: GroupRow, known: GroupRow | None, strange: Collection[str]) -> GroupRow:
    """A group with those members that no document could name, behind the others."""
    members = [] if known is None else [name for name in known.members if base_name(name) in strange]
    new = tuple(name for name in members if name not in row.members)
    return replace(row, members=(*row.members, *new)) if new else row


def security_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """``auth`` and ``authorization`` of a document as they are stored: always with their providers, so that
    it is never empty, which would mean: as the file says."""
    config = {"auth_provider": "none", "authorization_provider": "none"}
    for key, section, name in _SECURITY:
        if name in document.get(section, {}):
            config[key] = document[section][name]
    return config


def identity_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The other way: ``auth`` and ``authorization``; a key that nobody knows stays, to be complained of."""
    known = {key for key, _, _ in _SECURITY}
    sections: dict[str, Any] = {"auth": {}, "authorization": {}}
    for key, section, name in _SECURITY:
        if key in config:
            sections[section][name] = config[key]
    sections["auth"].update({key: value for key, value in config.items() if key not in known})
    return sections


def _guards(guardrails: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rows by kind; a group whose name could be taken for another kind is marked as one."""
    if guardrails is None:
        return {}
    groups = guardrails.get("groups", {})
    return {
        _GLOBAL: guardrails.get(_GLOBAL, []),
        **{
            f"{_GROUP}{name}" if name == _GLOBAL or name.startswith(_GROUP) else name: guards
            for name, guards in groups.items()
        },
    }


def _guardrails(rows: Mapping[str, Any]) -> dict[str, Any]:
    groups = {kind.removeprefix(_GROUP): guards for kind, guards in rows.items() if kind != _GLOBAL}
    return {_GLOBAL: rows.get(_GLOBAL, []), "groups": groups}


def _default(section: str) -> Any:
    """What stands for a section that has its default, so that it is stored as that."""
    return {"catalogProvider": {"type": "null"}, "accessControl": None}.get(section, {})


def _in_order(rows: Iterable[Any]) -> tuple[Any, ...]:
    """As they will be read back: by id, new ones last."""
    return tuple(sorted(rows, key=lambda row: (row.id is None, row.id or 0)))
