"""Shapes that users have on disk from earlier versions, turned into today's before the walk.

Each gives exactly one warning. The tree is never changed in place: an alias may stand in several places.
Spellings in snake_case and a bare ``type: null`` are seen by the walk itself.
"""

from queryflux.config.document import Entry, Mapping, Scalar, Sequence, Tree
from queryflux.config.problems import Path
from queryflux.config.walk import Reading

ROOT_KEYS = (
    "clusters",
    "clusterGroups",
    "routers",
    "routingFallback",
    "translation",
    "catalogProvider",
    "auth",
    "authorization",
    "guardrails",
    "accessControl",
)
_FLAT_ACCESS_KEYS = ("provider", "opa", "cerbos")


def modernise(root: Mapping, reading: Reading) -> Mapping:
    """Today's shape of a whole file. Complaints and warnings go to ``reading``."""
    root = _nested_sections(root, reading)
    root = _root_admin_api(root, reading)
    root = _static_users(root, reading)
    root = _embedded_clusters(root, reading)
    root = _guard_kinds(root, reading)
    _driver_keys(root, reading)
    return _flat_access_control(root, reading)


def find(tree: Tree | None, key: str) -> Entry | None:
    """The entry of a camelCase key, also in its snake_case spelling."""
    if not isinstance(tree, Mapping):
        return None
    if (entry := tree.entries.get(key)) is not None:
        return entry
    return tree.entries.get("".join(f"_{char.lower()}" if char.isupper() else char for char in key))


def _with(tree: Mapping, *added: Entry, without: tuple[str, ...] = ()) -> Mapping:
    """A copy with entries put in, in place of those of the same key, and others taken out."""
    entries = {key: entry for key, entry in tree.entries.items() if key not in without}
    entries.update({entry.key: entry for entry in added})
    return Mapping(tree.mark, entries)


def _changed(entry: Entry, value: Tree) -> Entry:
    return Entry(entry.mark, entry.key, value)


def _nested_sections(root: Mapping, reading: Reading) -> Mapping:
    """Sections of the root that stand under ``queryflux``."""
    process = find(root, "queryflux")
    if process is None or not isinstance(process.value, Mapping):
        return root
    moved = [entry for key in ROOT_KEYS if (entry := find(process.value, key)) is not None]
    for entry in moved:
        path: Path = ("queryflux", entry.key)
        if find(root, entry.key) is not None:
            message = f"{entry.key} is set here and at the root of the file"
            reading.problem(path, message, "keep the one at the root", entry.mark)
        else:
            message = f"{entry.key} stands under queryflux, its old place"
            reading.warn(path, message, "move it to the root of the file", entry.mark)
            root = _with(root, entry)
    kept = _with(process.value, without=tuple(entry.key for entry in moved))
    return _with(root, _changed(process, kept))


def _root_admin_api(root: Mapping, reading: Reading) -> Mapping:
    old = find(root, "adminApi")
    if old is None:
        return root
    process = find(root, "queryflux") or Entry(old.mark, "queryflux", Mapping(old.mark, {}))
    section = process.value
    if isinstance(section, Scalar) and section.is_null:
        section = Mapping(section.mark, {})
    if not isinstance(section, Mapping):
        return _with(root, without=(old.key,))
    if find(section, "adminApi") is not None:
        message = "is set here and under queryflux; the one under queryflux is used"
        reading.warn((old.key,), message, "remove this one", old.mark)
    else:
        message = "stands at the root of the file, its old place"
        reading.warn((old.key,), message, "move it under queryflux", old.mark)
        section = _with(section, old)
    return _with(root, _changed(process, section), without=(old.key,))


def _static_users(root: Mapping, reading: Reading) -> Mapping:
    auth = find(root, "auth")
    old = find(auth.value, "static") if auth else None
    if auth is None or old is None or not isinstance(auth.value, Mapping):
        return root
    if find(auth.value, "staticUsers") is not None:
        reading.problem(
            ("auth", "static"), "static and staticUsers are both set", "keep staticUsers", old.mark
        )
        section = _with(auth.value, without=("static",))
    else:
        reading.warn(("auth", "static"), "static is an old spelling", "write staticUsers", old.mark)
        section = _with(auth.value, Entry(old.mark, "staticUsers", old.value), without=("static",))
    return _with(root, _changed(auth, section))


def _embedded_clusters(root: Mapping, reading: Reading) -> Mapping:
    """Groups that hold their clusters themselves, with one engine for all of them."""
    groups = find(root, "clusterGroups")
    if groups is None or not isinstance(groups.value, Mapping):
        return root
    section = find(root, "clusters")
    known = section.value if section and isinstance(section.value, Mapping) else Mapping(groups.mark, {})
    rewritten: list[Entry] = []
    for entry in groups.value.entries.values():
        path: Path = ("clusterGroups", entry.key)
        old = isinstance(entry.value, Mapping) and ({"engine", "clusters"} & entry.value.entries.keys())
        if not isinstance(entry.value, Mapping) or not old:
            continue
        hint = "move its clusters to the section clusters and list their names under members"
        reading.warn(path, "embeds engine and clusters, an old form", hint, entry.mark)
        known, group = _unfold(entry.value, known, path, reading)
        rewritten.append(_changed(entry, group))
    if not rewritten:
        return root
    clusters = Entry(section.mark if section else groups.mark, section.key if section else "clusters", known)
    return _with(root, clusters, _changed(groups, _with(groups.value, *rewritten)))


def _unfold(group: Mapping, known: Mapping, path: Path, reading: Reading) -> tuple[Mapping, Mapping]:
    """The clusters of one old group added to ``known``, and the group with their names as members."""
    engine = group.entries.get("engine")
    names: list[Tree] = []
    for name, cluster in _nested(group, path, reading):
        added = [] if engine is None or "engine" in cluster.entries else [engine]
        if name.text in known.entries:
            message = f"there is another cluster named {name.text}"
            reading.problem((*path, "clusters"), message, "give one of them another name", name.mark)
        else:
            value = _with(cluster, *added, without=("name",))
            known = _with(known, Entry(name.mark, name.text, value))
        names.append(name)
    if (members := group.entries.get("members")) is not None and isinstance(members.value, Sequence):
        names = [*members.value.items, *names]
    place = group.entries.get("clusters") or group.entries["engine"]
    listed = Entry(place.mark, "members", Sequence(place.mark, names))
    return known, _with(group, listed, without=("engine", "clusters"))


def _nested(group: Mapping, path: Path, reading: Reading) -> list[tuple[Scalar, Mapping]]:
    """Name and settings of each cluster in an old group: a list with names, or a mapping by name."""
    entry = group.entries.get("clusters")
    if entry is None or (isinstance(entry.value, Scalar) and entry.value.is_null):
        return []
    found: list[tuple[Scalar, Mapping]] = []
    here = (*path, "clusters")
    if isinstance(entry.value, Mapping):
        for item in entry.value.entries.values():
            value = item.value if isinstance(item.value, Mapping) else Mapping(item.mark, {})
            found.append((Scalar(item.mark, item.key, plain=False), value))
    elif isinstance(entry.value, Sequence):
        for index, child in enumerate(entry.value.items):
            name = find(child, "name")
            if isinstance(child, Mapping) and name is not None and isinstance(name.value, Scalar):
                found.append((name.value, child))
            else:
                reading.problem((*here, index), "a cluster needs a name", "", child.mark)
    else:
        reading.problem(here, "expected a list of clusters", "", entry.mark)
    return found


def _guard_kinds(root: Mapping, reading: Reading) -> Mapping:
    """Guards whose ``kind`` is a mapping with the guard's own fields in it."""
    section = find(root, "guardrails")
    if section is None or not isinstance(section.value, Mapping):
        return root
    entries = []
    for entry in section.value.entries.values():
        path: Path = ("guardrails", entry.key)
        if isinstance(entry.value, Sequence):
            entries.append(_changed(entry, _flat_guards(entry.value, path, reading)))
        elif isinstance(entry.value, Mapping):
            groups = [
                _changed(group, _flat_guards(group.value, (*path, group.key), reading))
                for group in entry.value.entries.values()
            ]
            entries.append(_changed(entry, _with(entry.value, *groups)))
    return _with(root, _changed(section, _with(section.value, *entries)))


def _flat_guards(tree: Tree, path: Path, reading: Reading) -> Tree:
    if not isinstance(tree, Sequence):
        return tree
    guards = [_flat_guard(guard, (*path, index), reading) for index, guard in enumerate(tree.items)]
    return Sequence(tree.mark, guards)


def _flat_guard(guard: Tree, path: Path, reading: Reading) -> Tree:
    kind = find(guard, "kind")
    if not isinstance(guard, Mapping) or kind is None or not isinstance(kind.value, Mapping):
        return guard
    if len(kind.value.entries) != 1:
        return guard
    (inner,) = kind.value.entries.values()
    fields = list(inner.value.entries.values()) if isinstance(inner.value, Mapping) else []
    message = "kind is a mapping, an old form"
    reading.warn((*path, "kind"), message, "write kind and its fields side by side", kind.mark)
    word = Entry(kind.mark, "kind", Scalar(inner.mark, inner.key, plain=False))
    # Fields that stand beside ``kind`` win over those inside it.
    return _with(guard, *(field for field in fields if field.key not in guard.entries), word)


def _driver_keys(root: Mapping, reading: Reading) -> None:
    """ADBC's connection in YAML: one warning for each cluster, whichever keys it uses."""
    section = find(root, "clusters")
    if section is None or not isinstance(section.value, Mapping):
        return
    for cluster in section.value.entries.values():
        used = [key for key in ("uri", "dbKwargs") if find(cluster.value, key) is not None]
        if used:
            message = " and ".join(used) + " in a file: an old form, not for secrets"
            hint = "these keys belong to clusters made through the admin API"
            reading.warn(("clusters", cluster.key), message, hint, cluster.mark)


def _flat_access_control(root: Mapping, reading: Reading) -> Mapping:
    """One policy server without a name: refused, since reading it as no connections would let all through."""
    section = find(root, "accessControl")
    if section is None or not isinstance(section.value, Mapping):
        return root
    flat = [key for key in _FLAT_ACCESS_KEYS if find(section.value, key) is not None]
    if not flat:
        return root
    first = section.value.entries[flat[0]]
    new = ", ".join(f"accessControl.connections.main.{key}" for key in flat)
    message = f"{' and '.join(flat)} directly under accessControl is a form that is no longer read"
    hint = f"write {new} and accessControl.defaultConnection: main"
    reading.problem(("accessControl", flat[0]), message, hint, first.mark)
    return _with(root, _changed(section, _with(section.value, without=tuple(flat))))
