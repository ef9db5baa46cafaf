"""The words of an edit: what it starts from, what it is about, what came of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from queryflux.config.left_out import ROUTERS, LeftOut, left_out
from queryflux.config.problems import Problem, render_path, show
from queryflux.config.store import StoredConfig
from queryflux.config.variants import base_name
from queryflux.controlplane.changes import Change
from queryflux.controlplane.errors import NotServed, StoredUnsound
from queryflux.controlplane.records import Ids, ids_of
from queryflux.controlplane.references import Document


@dataclass(frozen=True, slots=True)
class Current:
    """The stored configuration: ``clear`` has the secrets, ``shown`` has markers in their place. ``leaving``:
    what the edit under way takes out of it, and what was left out of both."""

    stored: StoredConfig
    clear: Document = field(repr=False)
    shown: Document
    leaving: tuple[LeftOut, ...] = ()

    @property
    def ids(self) -> Ids:
        """The numbers of its rows."""
        return ids_of(self.stored.tables)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What is stored and not served."""
        return left_out(self.stored.tables)

    def entries_left_out(self, section: str) -> list[LeftOut]:
        """What of a section is stored and not served."""
        return [it for it in self.left_out if it.section == section]

    def members_left_out(self, group: str) -> list[str]:
        """Those of a group whose clusters are not served."""
        names = {it.name for it in self.entries_left_out("clusters")}
        members = (row.members for row in self.stored.tables.groups if row.name == group)
        return [member for member in next(members, ()) if base_name(member) in names]

    def check_served(self, section: str, name: str) -> None:
        """Raises NotServed."""
        for it in self.entries_left_out(section):
            if it.name == name:
                raise NotServed(f"{it.said}; it was not changed", hint=it.remedy)


@dataclass(frozen=True, slots=True)
class Renaming:
    """A cluster, a group or a script gets a new name, and stays the same row of its store."""

    section: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What an edit is about: one entry of a section, or (``name`` None) the whole of it. ``removed``: it is
    taken out; ``partial``: only a part of it is said."""

    section: str
    name: str | None = None
    removed: bool = False
    partial: bool = False

    def takes(self, it: LeftOut) -> bool:
        """Whether the edit does away with something that is left out: what nobody can read goes when another
        takes its place, what is another version's only when it is asked for."""
        if self.partial or (it.row is None and not self.removed):
            return False
        return self.section == it.section and self.name in (None, it.name)

    def holds(self, path: str) -> bool:
        """Whether a place of a document is in it."""
        own = render_path((self.section,) if self.name is None else (self.section, self.name))
        return path == own or path.startswith((f"{own}.", f"{own}["))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an edit did. ``shown`` is the whole configuration after it, masked. ``note``: it is stored, and
    why this process does not use it."""

    sequence: int
    shown: Document
    changes: tuple[Change, ...]
    warnings: tuple[Problem, ...]
    note: str = ""
    ids: Ids = field(default_factory=Ids)
    """The numbers of rows after it."""


def check_names(document: Mapping[str, Any], stays: Collection[LeftOut]) -> None:
    """Raises NotServed when a document has an entry of the name of something that is left out: it would be
    written over."""
    for it in stays:
        entries = document.get(it.section)
        if isinstance(entries, Mapping) and it.name in entries:
            raise NotServed(
                f"{it.said}; nothing was changed",
                hint=it.remedy,
                problems=[Problem(0, 0, it.path, f"{show(it.name)} is not this version's to change")],
            )


def broken(current: Current) -> list[Problem]:
    """The rows that nobody can read, as problems."""
    return [it.problem for it in current.left_out if it.row is not None]


def check_readable(current: Current, mends: Callable[[], bool]) -> None:
    """Raises StoredUnsound where there are rows that cannot be read, unless the edit does away with some of
    them, or else ``mends`` what is wrong. Those of rules stand in the way of all others: rules are written
    anew with every group."""
    rules = any(it.section == ROUTERS and it.row is not None for it in current.left_out)
    problems = broken(current)
    if problems and (rules or not (any(it.row is not None for it in current.leaving) or mends())):
        raise unsound(problems)


def unsound(problems: Sequence[Problem]) -> StoredUnsound:
    """What is told to whoever asked for something else."""
    return StoredUnsound(
        "the stored configuration is not sound, and not by this request; nothing was changed",
        hint="mend what problems names first",
        problems=problems,
    )


def not_by(subjects: Collection[Subject], problems: Sequence[Problem], before: Collection[Problem]) -> bool:
    """Whether all of an edit's problems were there before it, and outside of what it is about."""
    return all(
        problem in before and not any(one.holds(problem.path) for one in subjects) for problem in problems
    )


def removals(leaving: Collection[LeftOut], after: Document) -> list[Change]:
    """What goes of what no document has."""
    return [
        Change(op="remove", path=it.path)
        for it in leaving
        if not it.name or it.name not in after.get(it.section, {})
    ]
