"""Bytes become a tree that knows its lines.

The tree is built from YAML's events, not by PyYAML's composer, so that size, depth, the growth of aliases and
keys that occur twice are checked before anything is kept. A scalar stays text; the type it is read into says
what it means, so that a password of digits stays a password.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from queryflux.config.problems import ConfigProblems, Path, Problem, render_path, show

MAX_BYTES = 10 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 200_000

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_YAML: Any = yaml.SafeLoader("")
_NOT_IN_YAML = re.compile("[^\t\n\r -~\x85\xa0-퟿\ue000-�\U00010000-\U0010ffff]")
_NULLS = frozenset(("~", "null", "Null", "NULL"))
_STANDARD_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file; both count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Scalar:
    """Text. ``plain`` tells that it was written without quotes, so that it may mean a number or null."""

    mark: Mark
    text: str
    plain: bool
    substituted: bool = False

    @property
    def is_null(self) -> bool:
        """Whether it is YAML's null. What a variable holds is null only when it is empty."""
        return self.plain and (not self.text or (not self.substituted and self.text in _NULLS))


@dataclass(slots=True)
class Sequence:
    """A list."""

    mark: Mark
    items: "list[Tree]"


@dataclass(slots=True)
class Entry:
    """One key of a mapping and what it holds."""

    mark: Mark
    key: str
    value: "Tree"


@dataclass(slots=True)
class Mapping:
    """Keys in the order of the file; none occurs twice."""

    mark: Mark
    entries: dict[str, Entry]


Tree = Scalar | Sequence | Mapping


def kind_of(tree: Tree) -> str:
    """The word for it in a message."""
    if isinstance(tree, Mapping):
        return "a mapping"
    if isinstance(tree, Sequence):
        return "a list"
    return "nothing" if tree.is_null else "a single value"


def parse(data: bytes) -> tuple[Mapping, list[Problem]]:
    """The tree of one YAML document, and its keys that occur twice; nothing at all is an empty mapping.
    Raises ConfigProblems when there is no tree to go on with."""
    text = _decode(data)
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Mark(mark.line + 1, mark.column + 1) if mark else Mark(0, 0)
        if "nesting depth" in str(error.problem):  # libyaml's own limit, met while it looks ahead
            raise _too_deep(place) from None
        raise _broken(place, f"not YAML: {error.problem or error.context}", _advice(text, place)) from None
    except yaml.YAMLError as error:
        raise _broken(Mark(0, 0), f"not YAML: {error}") from None
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return Mapping(Mark(1, 1), {}), []
    if not isinstance(root, Mapping):
        raise _broken(root.mark, f"a configuration is a mapping of keys to values, not {kind_of(root)}")
    return root, builder.problems


def _broken(mark: Mark, message: str, hint: str = "") -> ConfigProblems:
    return ConfigProblems([Problem(mark.line, mark.column, "", message, hint)])


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise too_large()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        mark = Mark(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        found = f"byte 0x{data[error.start]:02x}"
        raise _broken(mark, f"the file is not UTF-8: {found}", "save it as UTF-8") from None
    if match := _NOT_IN_YAML.search(text):
        start = match.start()
        mark = Mark(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
        raise _broken(mark, f"the character U+{ord(match[0]):04X} is not allowed in YAML", "remove it")
    return text


def too_large() -> ConfigProblems:
    """The refusal of a file over MAX_BYTES."""
    limit = MAX_BYTES // (1024 * 1024)
    return _broken(Mark(0, 0), f"the file is larger than {limit} MiB, too large for a configuration")


def _advice(text: str, place: Mark) -> str:
    lines = text.split("\n")
    if 0 < place.line <= len(lines):
        line = lines[place.line - 1]
        if "\t" in line[: len(line) - len(line.lstrip())] + line[place.column - 1 : place.column]:
            return "indent with spaces, not tabs"
        if "${" in line:
            return "inside { } and [ ], write quotes around ${...}"
    return ""


@dataclass(slots=True)
class _Open:
    """A collection that has begun and not ended."""

    node: Sequence | Mapping
    anchor: str | None
    nodes_before: int
    key: Scalar | None = None


class _Builder:
    """Takes events and builds the tree."""

    def __init__(self) -> None:
        self.root: Tree | None = None
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Tree, int]] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        start = event.start_mark
        mark = Mark(start.line + 1, start.column + 1) if start else Mark(0, 0)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _broken(mark, "a second document begins here", "keep one document in a file")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "", mark)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, mark)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin(event, mark)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._end()

    def _count(self, nodes: int, mark: Mark) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            hint = "aliases count with everything they stand for"
            raise _broken(mark, f"more than {MAX_NODES} values, too many for a configuration", hint)

    def _alias(self, anchor: str, mark: Mark) -> None:
        known = self._anchors.get(anchor)
        if known is None:
            within = any(frame.anchor == anchor for frame in self._open)
            what = "contains itself" if within else "is not defined before it is used"
            raise _broken(mark, f"the anchor {show(anchor)} {what}")
        tree, nodes = known
        self._count(nodes, mark)
        if len(self._open) + depth_of(tree) > MAX_DEPTH:
            raise _too_deep(mark)
        self._place(tree, mark)

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark) -> None:
        self._count(1, mark)
        self._check_tag(event.tag, mark)
        scalar = Scalar(mark, event.value, plain=not event.style and event.implicit[0])
        if event.anchor:
            self._anchors[event.anchor] = (scalar, 1)
        self._place(scalar, mark)

    def _check_tag(self, tag: str | None, mark: Mark) -> None:
        if tag is not None and tag != "!" and tag not in _STANDARD_TAGS:
            raise _broken(mark, f"the tag {show(tag)} has no meaning in a configuration", "remove it")

    def _begin(self, event: yaml.CollectionStartEvent, mark: Mark) -> None:
        self._check_tag(event.tag, mark)
        if len(self._open) >= MAX_DEPTH:
            raise _too_deep(mark)
        self._count(1, mark)
        node: Sequence | Mapping
        node = Mapping(mark, {}) if isinstance(event, yaml.MappingStartEvent) else Sequence(mark, [])
        self._open.append(_Open(node, event.anchor, self._nodes - 1))

    def _end(self) -> None:
        frame = self._open.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.node, self._nodes - frame.nodes_before)
        self._place(frame.node, frame.node.mark)

    def _place(self, tree: Tree, mark: Mark) -> None:
        if not self._open:
            self.root = tree
            return
        frame = self._open[-1]
        if isinstance(frame.node, Sequence):
            frame.node.items.append(tree)
        elif frame.key is None:
            frame.key = self._as_key(tree, mark)
        else:
            self._put(frame.node, Entry(frame.key.mark, frame.key.text, tree), frame.key.plain)
            frame.key = None

    def _as_key(self, tree: Tree, mark: Mark) -> Scalar:
        if not isinstance(tree, Scalar):
            raise _broken(mark, f"a key is a single word, not {kind_of(tree)}")
        return Scalar(mark, tree.text, tree.plain)

    def _put(self, node: Mapping, entry: Entry, plain: bool) -> None:
        if entry.key == "<<" and plain:
            self._merge(node, entry)
            return
        earlier = node.entries.get(entry.key)
        if earlier is not None and not isinstance(earlier, _Merged):
            message = f"the key is set twice; the first is on line {earlier.mark.line}"
            place = (entry.mark.line, entry.mark.column, render_path(self._path()))
            self.problems.append(Problem(*place, message, "keep one"))
            return
        node.entries[entry.key] = entry

    def _path(self) -> Path:
        """Where the builder stands: the key or position that is open in each collection."""
        path: list[str | int] = []
        for frame in self._open:
            if isinstance(frame.node, Sequence):
                path.append(len(frame.node.items))
            elif frame.key is not None:
                path.append(frame.key.text)
        return tuple(path)

    def _merge(self, node: Mapping, entry: Entry) -> None:
        sources = entry.value.items if isinstance(entry.value, Sequence) else [entry.value]
        for source in sources:
            if not isinstance(source, Mapping):
                raise _broken(entry.mark, f"<< takes a mapping, not {kind_of(source)}")
            self._count(len(source.entries), entry.mark)
            for key, merged in source.entries.items():
                node.entries.setdefault(key, _Merged(merged.mark, key, merged.value))


class _Merged(Entry):
    """An entry that came by ``<<``; one of the mapping's own may replace it."""


def _too_deep(mark: Mark) -> ConfigProblems:
    return _broken(mark, f"nested more than {MAX_DEPTH} levels deep, too deep for a configuration")


def depth_of(tree: Tree) -> int:
    """Levels of collections in it. What it is given is never deeper than MAX_DEPTH."""
    return 1 + max((depth_of(child) for child in _children(tree)), default=0)


def _children(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, Sequence):
        yield from tree.items
    elif isinstance(tree, Mapping):
        for entry in tree.entries.values():
            yield entry.value


def plain_value(scalar: Scalar) -> str | int | float | bool | None:
    """What YAML itself takes the scalar for, where no type says more."""
    if not scalar.plain:
        return scalar.text
    tag = _YAML.resolve(yaml.ScalarNode, scalar.text, (True, False)).rpartition(":")[2]
    build = {
        "int": _YAML.construct_yaml_int,
        "float": _YAML.construct_yaml_float,
        "bool": _YAML.construct_yaml_bool,
        "null": _YAML.construct_yaml_null,
    }.get(tag)
    if build is None:
        return scalar.text
    value: int | float | bool | None = build(yaml.ScalarNode(tag, scalar.text))
    return value
