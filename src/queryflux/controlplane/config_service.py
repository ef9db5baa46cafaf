"""Reading and editing the configuration: what the admin API and the command line stand on. No HTTP.

An edit loads what is stored, changes the whole document, checks it as a file is checked, and stores what
differs, all or nothing. When somebody else was faster it begins again, unless its caller said which state it
meant to change. Secrets come in and never go out (config/masking.py).
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from queryflux.config.candidate import Candidate, check_document, read_document
from queryflux.config.checks import Check
from queryflux.config.clusters import ClusterConfig
from queryflux.config.left_out import left_out, without
from queryflux.config.loader import unchecked
from queryflux.config.masking import leftovers, masked, masked_untyped, restore, revealed
from queryflux.config.problems import ConfigProblems, Problem, show
from queryflux.config.process import ProcessConfig
from queryflux.config.rows import document_over, updated
from queryflux.config.scripts import CheckScripts
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import Tables, Unreadable
from queryflux.controlplane import shown
from queryflux.controlplane.bodies import check_body
from queryflux.controlplane.changes import changes
from queryflux.controlplane.edits import (
    Current,
    Outcome,
    Renaming,
    Subject,
    broken,
    check_names,
    check_readable,
    not_by,
    removals,
    unsound,
)
from queryflux.controlplane.errors import Changed, InUse, NameTaken, StoredUnsound
from queryflux.controlplane.records import (
    CLUSTER,
    GROUP,
    cluster_of,
    group_of,
    ids_of,
    merged,
    routing_of,
)
from queryflux.controlplane.references import (
    Document,
    places_of_group,
    rename_cluster,
    rename_group,
    without_cluster,
)
from queryflux.controlplane.shown import check_section, known_setting, served_cluster, served_group, stored_in
from queryflux.model.errors import ConfigConflict, ConfigError
from queryflux.runtime.threads import in_thread

log = logging.getLogger(__name__)

_TRIES = 10
_TRIAL = "(test)"
"""Name of a cluster that is only tried out."""
_THREAD = "configuration"
_NAMED = ("clusters", "scripts", "clusterGroups")
"""Sections whose entries are rows with a name."""
_STORED_WITH = {"routingFallback": "routers"}
"""Sections that are stored together with another."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a configuration is checked against: this process, and what other rooms know."""

    process: ProcessConfig
    regex: Check
    password: Check
    scripts: CheckScripts = unchecked

    def check(self, document: Document) -> Candidate:
        """``document`` as something that could be used. Raises ConfigProblems."""
        return check_document(document, self.process, self.regex, self.password, self.scripts)


class ConfigService:
    """The configuration of one store over one file."""

    def __init__(
        self,
        store: ConfigStore,
        file: Snapshot,
        rules: Rules,
        *,
        durable: bool,
        apply: Callable[[], Awaitable[str]],
    ) -> None:
        """``file`` gives what is not stored. ``durable``: what is stored outlives this process. ``apply``
        makes this process use what is stored now, and says why when it cannot."""
        self._store = store
        self._file = file
        self._rules = rules
        self.durable = durable
        self._apply = apply
        self._last: Current | None = None

    # Reading.

    async def current(self) -> Current:
        """What is stored now. Raises StoreUnavailable."""
        last = self._last
        if last is not None and await self._store.revision() == (last.stored.epoch, last.stored.sequence):
            return last
        stored = await self._load()
        self._last = await in_thread(_THREAD, self._current, stored)
        return self._last

    async def _load(self) -> StoredConfig:
        """Raises StoredUnsound when nothing can be made of what is stored: no request is to blame."""
        try:
            return await self._store.load()
        except ConfigError as error:
            raise StoredUnsound(f"the stored configuration cannot be read: {error.message}") from error

    def _current(self, stored: StoredConfig) -> Current:
        last = self._last
        if last is not None and last.stored == stored:
            return last
        document, _ = document_over(stored.tables, self._file)
        try:
            snapshot = read_document(document)
        except ConfigProblems as error:
            log.warning("the stored configuration is not sound: %s", error)
            return Current(stored, _complete(document), masked_untyped(_complete(document)))
        return Current(stored, _complete(revealed(snapshot)), _complete(masked(snapshot)))

    async def clusters(self) -> list[dict[str, Any]]:
        """Every cluster's record, those last that are not served."""
        return shown.clusters(await self.current())

    async def cluster(self, name: str) -> dict[str, Any]:
        """One cluster's record. Raises NotThere."""
        return shown.cluster(await self.current(), name)

    async def groups(self) -> list[dict[str, Any]]:
        """Every group's record, those last that cannot be read."""
        return shown.groups(await self.current())

    async def group(self, name: str) -> dict[str, Any]:
        """One group's record. Raises NotThere."""
        return shown.group(await self.current(), name)

    async def routing(self) -> dict[str, Any]:
        """Rules and fallback. Raises StoredUnsound."""
        return shown.routing(await self.current())

    async def setting(self, name: str) -> Any:
        """One of the settings. Raises NotThere, StoredUnsound."""
        return shown.setting(await self.current(), name)

    async def settings(self) -> dict[str, Any]:
        """All of them; null for what cannot be read."""
        return shown.settings(await self.current())

    # Clusters.

    async def put_cluster(self, name: str, record: Mapping[str, Any]) -> Outcome:
        """Add or replace a cluster. Raises NotServed."""

        def change(current: Current) -> Document:
            return _with(current.clear, "clusters", name, cluster_of(name, record))

        return await self.edit(change, [Subject("clusters", name)])

    async def patch_cluster(
        self, name: str, patch: Mapping[str, Any], new_name: str | None = None
    ) -> Outcome:
        """Merge into a cluster's record; ``new_name`` renames it, also in its groups. Raises NotThere,
        NameTaken, NotServed."""
        renaming = _renaming("clusters", name, new_name)

        def change(current: Current) -> Document:
            record = check_body(merged(served_cluster(current, name), patch), CLUSTER)
            document = _with(current.clear, "clusters", name, cluster_of(name, record))
            return _renamed(current, document, renaming, rename_cluster)

        return await self.edit(
            change, [Subject("clusters", new_name or name, partial=True)], renaming=renaming
        )

    async def delete_cluster(self, name: str) -> Outcome:
        """Remove a cluster, also from its groups. Raises NotThere."""

        def change(current: Current) -> Document:
            if not current.leaving:
                served_cluster(current, name)
            return without_cluster(current.clear, name)

        return await self.edit(change, [Subject("clusters", name, removed=True)])

    async def candidate(self, name: str | None, record: Mapping[str, Any]) -> tuple[str, ClusterConfig]:
        """A cluster's settings, checked and not stored, to try them out; markers stand for the secrets of the
        stored cluster ``name``. Raises ConfigProblems, Refused."""
        current = await self.current()
        chosen = name if name is not None else _TRIAL
        section = {chosen: cluster_of(chosen, record)}
        document = restore({"clusters": section}, current.clear, current.shown)
        if left := leftovers(document):
            raise ConfigProblems(left)
        return chosen, self._rules.check(document).snapshot.clusters[chosen]

    # Groups.

    async def put_group(self, name: str, record: Mapping[str, Any]) -> Outcome:
        """Add or replace a group."""

        def change(current: Current) -> Document:
            return _with(current.clear, "clusterGroups", name, group_of(name, record, current.ids.scripts))

        return await self.edit(change, [Subject("clusterGroups", name)])

    async def patch_group(self, name: str, patch: Mapping[str, Any], new_name: str | None = None) -> Outcome:
        """Merge into a group's record; ``new_name`` renames it, also where queries are routed to it. Raises
        NotThere, NameTaken."""
        renaming = _renaming("clusterGroups", name, new_name)

        def change(current: Current) -> Document:
            record = check_body(merged(served_group(current, name), patch), GROUP)
            group = group_of(name, record, current.ids.scripts)
            document = _with(current.clear, "clusterGroups", name, group)
            return _renamed(current, document, renaming, rename_group)

        return await self.edit(
            change, [Subject("clusterGroups", new_name or name, partial=True)], renaming=renaming
        )

    async def delete_group(self, name: str) -> Outcome:
        """Remove a group. Raises NotThere, InUse when something refers to it."""

        def change(current: Current) -> Document:
            if not current.leaving:
                served_group(current, name)
            if places := places_of_group(current.clear, name):
                problems = [Problem(0, 0, place, f"leads to {name}") for place in places]
                raise InUse(
                    f"group {name} is still in use",
                    hint="change these places first, then delete the group",
                    problems=problems,
                )
            groups = {key: group for key, group in current.clear["clusterGroups"].items() if key != name}
            return {**current.clear, "clusterGroups": groups}

        return await self.edit(change, [Subject("clusterGroups", name, removed=True)])

    # The rest.

    async def put_routing(self, record: Mapping[str, Any]) -> Outcome:
        """Replace rules and fallback; a fallback that is not given stays. Raises Refused."""

        def change(current: Current) -> Document:
            return {**current.clear, **routing_of(record, current.ids.groups)}

        return await self.edit(change, [Subject("routers"), Subject("routingFallback")])

    async def put_setting(self, name: str, value: Any) -> Outcome:
        """Replace one section of the settings. Raises NotThere."""
        known_setting(name)
        return await self.edit(lambda current: {**current.clear, name: value}, _subjects([name]))

    async def patch_setting(self, name: str, patch: Any) -> Outcome:
        """Merge into one section of the settings. Raises NotThere."""
        known_setting(name)

        def change(current: Current) -> Document:
            check_section(current, stored_in(name))
            return {**current.clear, name: merged(current.shown.get(name), patch)}

        return await self.edit(change, [Subject(name, partial=True)])

    async def put_sections(
        self, sections: Mapping[str, Any], *, expected: int | None = None, dry_run: bool = False
    ) -> Outcome:
        """Replace these sections, each whole, in one step. ``expected``: the sequence that the caller saw;
        another one now raises Changed. ``dry_run``: everything but the storing."""
        return await self.edit(
            lambda current: {**current.clear, **sections},
            _subjects(sections),
            expected=expected,
            dry_run=dry_run,
        )

    async def edit(
        self,
        change: Callable[[Current], Document],
        subjects: Collection[Subject] = (),
        *,
        renaming: Renaming | None = None,
        expected: int | None = None,
        dry_run: bool = False,
    ) -> Outcome:
        """One edit: ``change`` gives the whole document as it shall be, ``subjects`` are what it is about.
        Raises ConfigProblems, NotServed, StoredUnsound, Changed, StoreUnavailable, and what ``change``
        raises."""
        for _ in range(_TRIES):
            stored = await self._load()
            if expected is not None and stored.sequence != expected:
                raise Changed(
                    f"the configuration is at {stored.sequence} now and not at {expected}",
                    hint="read it again, look at what changed, and send the edit again",
                )
            outcome, tables = await in_thread(_THREAD, self._prepare, stored, change, subjects, renaming)
            if dry_run or not outcome.changes:
                return outcome
            try:
                saved = await self._store.save(stored, tables)
            except ConfigConflict:
                continue
            paths = ", ".join(change.path for change in outcome.changes[:10])
            log.info("the configuration was edited and is at %d now: %s", saved.sequence, paths)
            ids = ids_of(saved.tables)
            return replace(outcome, sequence=saved.sequence, note=await self._apply(), ids=ids)
        raise Changed("others keep changing the configuration", hint="try again")

    def _prepare(
        self,
        stored: StoredConfig,
        change: Callable[[Current], Document],
        subjects: Collection[Subject],
        renaming: Renaming | None,
    ) -> tuple[Outcome, Tables]:
        """The outcome of a change, and the tables to store for it. Raises as ``edit``."""
        leaving = tuple(it for it in left_out(stored.tables) if any(one.takes(it) for one in subjects))
        if leaving:
            stored = replace(stored, tables=without(stored.tables, leaving))
        current = replace(self._current(stored), leaving=leaving)
        document = restore(change(current), current.clear, current.shown)
        check_names(document, current.left_out)
        left = leftovers(document)
        try:
            candidate = self._rules.check(document)
        except ConfigProblems as error:
            if not left and not_by(subjects, error.problems, self._problems(current.clear)):
                raise unsound([*broken(current), *error.problems]) from None
            raise ConfigProblems([*error.problems, *left], error.warnings) from None
        if left:
            raise ConfigProblems(left, candidate.warnings)
        check_readable(current, lambda: bool(self._problems(current.clear)))
        after = _complete(revealed(candidate.snapshot))
        shown = _complete(masked(candidate.snapshot))
        touched = {
            _STORED_WITH.get(section, section)
            for section in {**current.clear, **after}
            if current.clear.get(section) != after.get(section)
        } | {it.section for it in leaving if it.row is not None}
        made = (*changes(current.clear, after, current.shown, shown), *removals(leaving, after))
        ids = ids_of(stored.tables)
        outcome = Outcome(stored.sequence, shown, made, candidate.warnings, ids=ids)
        rows = [it.row for it in leaving if it.row is not None]
        return outcome, _tables(stored.tables, candidate.snapshot, touched, renaming, rows)

    def _problems(self, document: Document) -> Collection[Problem]:
        """What is wrong with what is stored."""
        try:
            self._rules.check(document)
        except ConfigProblems as error:
            return error.problems
        return ()


def _tables(
    tables: Tables,
    snapshot: Snapshot,
    touched: set[str],
    renaming: Renaming | None,
    replaced: Collection[Unreadable],
) -> Tables:
    """The rows of the sections that an edit touched. A cluster's new name says nothing about a group of that
    name, so the two are updated one after the other."""
    for section in _NAMED:
        if section in touched:
            ours = renaming is not None and renaming.section == section
            names = {renaming.new: renaming.old} if renaming is not None and ours else None
            tables = updated(tables, snapshot, {section}, names, replaced)
    return updated(tables, snapshot, touched - set(_NAMED))


def _complete(document: Mapping[str, Any]) -> Document:
    """A document with the sections that everybody looks into."""
    return {"clusters": {}, "clusterGroups": {}, "routers": [], "routingFallback": "", **document}


def _with(document: Document, section: str, name: str, value: Any) -> Document:
    return {**document, section: {**document[section], name: value}}


def _subjects(sections: Iterable[str]) -> list[Subject]:
    return [Subject(section) for section in dict.fromkeys([*sections, *map(stored_in, sections)])]


def _renaming(section: str, old: str, new: str | None) -> Renaming | None:
    return None if new is None or new == old else Renaming(section, old, new)


def _renamed(
    current: Current,
    document: Document,
    renaming: Renaming | None,
    rename: Callable[[Document, str, str], Document],
) -> Document:
    """``document`` with the entry under its new name, if it has one. Raises NameTaken."""
    if renaming is None:
        return document
    left_out = (it.name for it in current.entries_left_out(renaming.section))
    if renaming.new in (*current.clear[renaming.section], *left_out):
        raise NameTaken(f"there is one named {show(renaming.new)} already", hint="choose another name")
    # The old name is where its secrets are.
    return rename(restore(document, current.clear, current.shown), renaming.old, renaming.new)
