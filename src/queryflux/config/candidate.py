"""A configuration that came as data and not as a file: checked like a file, before anybody uses or stores it.

Data is generic JSON in the shape of a Snapshot (``clusters``, ``clusterGroups``, ``routers``, ...,
``queryHistory``). It is read by the same walk and held to the same checks as YAML; its problems have paths
and no lines. ``${VAR}`` means nothing in it, and it names no files of secrets: both would let whoever edits
the configuration read this machine. What an operator writes has no key that nobody knows; the content of a
snapshot that travelled may have some, for it may come from a later version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from queryflux.config.checks import Check
from queryflux.config.document import Entry, Mark, Scalar, Sequence, Tree, parse
from queryflux.config.document import Mapping as MappingTree
from queryflux.config.hooks import decode_hook
from queryflux.config.legacy import find, modernise
from queryflux.config.loader import (
    CANDIDATE_CHECKS,
    MORE,
    found_sound,
    read_secret_file,
    run_checks,
    unchecked,
)
from queryflux.config.problems import ConfigProblems, Problem
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.script_files import with_script_files
from queryflux.config.scripts import CheckScripts
from queryflux.config.snapshot import Snapshot, document_of, sections_of
from queryflux.config.unavailable import refuse_unavailable
from queryflux.config.walk import INVALID, Reading, TooManyProblems, type_of
from queryflux.model.secret import Secret

SECTIONS = tuple(field.encode_name for field in msgspec.structs.fields(Snapshot))
"""The keys of a whole document."""

_NOWHERE = Mark(0, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that could be used, and what is odd about it."""

    snapshot: Snapshot
    warnings: tuple[Problem, ...]


def check_document(
    document: Mapping[str, Any],
    process: ProcessConfig,
    check_regex: Check,
    check_password: Check,
    scripts: CheckScripts = unchecked,
) -> Candidate:
    """``document`` as a Snapshot for ``process``, whose doors decide which stored passwords will do. Without
    ``scripts`` they are compiled when it is used, and not before. Raises ConfigProblems with every problem at
    once."""
    return _checked(document, Reading({}, _no_files), process, check_regex, check_password, scripts)


def check_content(
    content: Mapping[str, Any], process: ProcessConfig, check_regex: Check, check_password: Check
) -> Candidate:
    """The content of a snapshot that was received. Keys that this version does not know are passed over at
    every level; in all else as ``check_document``, also that what this version cannot do is refused."""
    try:
        sections = sections_of(content)
    except ValueError as error:
        raise ConfigProblems([Problem(0, 0, "", str(error))]) from None
    reading = Reading({}, _no_files, tolerant=True)
    return _checked(sections, reading, process, check_regex, check_password)


def _checked(
    document: Mapping[str, Any],
    reading: Reading,
    process: ProcessConfig,
    check_regex: Check,
    check_password: Check,
    scripts: CheckScripts = unchecked,
) -> Candidate:
    snapshot = Snapshot()
    try:
        values = reading.read(tree_of(document), _SNAPSHOT, ())
        values = {} if values is INVALID else values
        history = {"queryHistory": values.get("queryHistory", {})}
        refuse_unavailable({**values, "queryflux": history}, reading)
        with_script_files(values, reading)
        snapshot = _snapshot(values)
        run_checks(CANDIDATE_CHECKS, _root(snapshot, process), reading, check_regex, check_password, scripts)
    except TooManyProblems:
        reading.problems.append(MORE)
    return Candidate(snapshot, found_sound(reading))


def read_document(document: Mapping[str, Any]) -> Snapshot:
    """``document`` as a Snapshot, as far as types go. Raises ConfigProblems."""
    reading = Reading({}, _no_files)
    values: Any = {}
    try:
        values = reading.read(tree_of(document), _SNAPSHOT, ())
    except TooManyProblems:
        reading.problems.append(MORE)
    found_sound(reading)
    return _snapshot(values)


def read_sections(data: bytes, environ: Mapping[str, str]) -> dict[str, Any]:
    """The sections that a YAML file has, each whole, as generic JSON with secrets in clear; sections that the
    file does not have are not there, and what belongs to one process (``queryflux``) is left out. Variables
    and files of secrets are read here. What needs the whole configuration is not checked. Raises
    ConfigProblems, with lines."""
    reading = Reading(environ, read_secret_file)
    tree, reading.problems = parse(data)
    tree = _portable(modernise(tree, reading))
    values: Any = {}
    try:
        values = reading.read(tree, _SNAPSHOT, ())
        if values is not INVALID:
            with_script_files(values, reading)
    except TooManyProblems:
        reading.problems.append(MORE)
    found_sound(reading)
    snapshot = _snapshot(values)
    return {
        field.encode_name: document_of(getattr(snapshot, field.name), Secret.reveal)
        for field in msgspec.structs.fields(Snapshot)
        if find(tree, field.encode_name) is not None
    }


def tree_of(value: Any) -> Tree:
    """Generic JSON as the tree that a file would give."""
    if isinstance(value, Mapping):
        entries = {str(key): Entry(_NOWHERE, str(key), tree_of(item)) for key, item in value.items()}
        return MappingTree(_NOWHERE, entries)
    if isinstance(value, list | tuple):
        return Sequence(_NOWHERE, [tree_of(item) for item in value])
    if value is None:
        return Scalar(_NOWHERE, "", plain=True)
    if isinstance(value, bool):
        return Scalar(_NOWHERE, str(value).lower(), plain=True)
    if isinstance(value, int | float):
        return Scalar(_NOWHERE, repr(value), plain=True)
    return Scalar(_NOWHERE, str(value).replace("${", "$${"), plain=False)


def _portable(root: MappingTree) -> MappingTree:
    """A file without ``queryflux``, whose ``queryHistory`` travels."""
    entries = {key: entry for key, entry in root.entries.items() if key != "queryflux"}
    process = find(root, "queryflux")
    history = find(process.value, "queryHistory") if process is not None else None
    if history is not None:
        entries.setdefault("queryHistory", history)
    return MappingTree(root.mark, entries)


def _snapshot(values: Mapping[str, Any]) -> Snapshot:
    return msgspec.convert(values, Snapshot, dec_hook=decode_hook)


def _root(snapshot: Snapshot, process: ProcessConfig) -> RootConfig:
    """The file that would have given this snapshot to this process."""
    fields = {field.name for field in msgspec.structs.fields(RootConfig)} - {"queryflux"}
    sections = {name: getattr(snapshot, name) for name in fields}
    own = msgspec.structs.replace(process, query_history=snapshot.query_history)
    return RootConfig(queryflux=own, **sections)


def _no_files(name: str) -> NoReturn:
    raise ValueError("files are not read here; give the value itself")


_SNAPSHOT = type_of(Snapshot)
