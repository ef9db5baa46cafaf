"""The tree read against the types of the structs: every problem at once, each with its line.

What comes out is plain data with Secret objects in it, ready for ``msgspec.convert``; what is wrong is left
out of it, so that the checks between sections can go on. ``Reading`` also remembers where each key stands.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec.inspect as mi
from msgspec import Struct

from queryflux.config.document import Entry, Mark, Scalar, Sequence, Tree, kind_of, plain_value
from queryflux.config.document import Mapping as MappingTree
from queryflux.config.problems import Path, Problem, one_of, render_path, show
from queryflux.config.substitute import SubstitutionError, substitute
from queryflux.model.secret import Secret

ReadSecret = Callable[[str], str]
"""Gives the text of a secret file. Raises OSError or ValueError."""

INVALID: Final = object()
"""Stands for a value that has been complained about."""

_INT = re.compile(r"[+-]?[0-9](_?[0-9])*\Z")
_BOOLS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}


MAX_PROBLEMS = 500
"""A file with more is not read on: nobody mends them in one go, and each costs time."""


class TooManyProblems(Exception):
    """There are MAX_PROBLEMS already; the loader catches it."""


class Reading:
    """One walk over one file: its environment, what it complains about, and where things are. A tolerant one
    passes over keys that nobody knows: a later version wrote them."""

    def __init__(
        self, environ: Mapping[str, str], read_secret: ReadSecret, *, tolerant: bool = False
    ) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.marks: dict[Path, Mark] = {}
        self._kept: dict[Path, list[int]] = {}
        self._broken: set[Path] = set()
        self._environ = environ
        self._read_secret = read_secret
        self._tolerant = tolerant

    def problem(self, path: Path, message: str, hint: str = "", mark: Mark | None = None) -> None:
        """Complain about ``path``, at ``mark`` or where the path, or what it is in, stands. Raises
        TooManyProblems."""
        if len(self.problems) >= MAX_PROBLEMS:
            raise TooManyProblems
        self.problems.append(self._make(path, message, hint, mark))
        self._broken.add(path)

    @property
    def broken(self) -> frozenset[Path]:
        """Paths at which something is wrong."""
        return frozenset(self._broken)

    def is_broken(self, path: Path) -> bool:
        """Whether something is wrong at this very path, so that what stands there now is only a default."""
        return path in self._broken

    def warn(self, path: Path, message: str, hint: str = "", mark: Mark | None = None) -> None:
        """Say that something will not do for ever, or is likely a mistake."""
        self.warnings.append(self._make(path, message, hint, mark))

    def item_path(self, path: Path, index: int) -> Path:
        """The path of what is item ``index`` of a list now; earlier items may have been left out of it."""
        kept = self._kept.get(path)
        return (*path, kept[index] if kept else index)

    @property
    def tolerant(self) -> bool:
        """Whether this came from another process of the fleet, and not from an operator."""
        return self._tolerant

    def file_text(self, name: str, path: Path) -> str | None:
        """The text of a file that is named at ``path``; None after a complaint."""
        try:
            return self._read_secret(name)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem(path, f"cannot read {show(name, 200)}: {reason}")
            return None

    def mark_of(self, path: Path) -> Mark:
        """Where a path stands; a path that is not written stands where its parent does."""
        for length in range(len(path), -1, -1):
            if (mark := self.marks.get(path[:length])) is not None:
                return mark
        return Mark(0, 0)

    def _make(self, path: Path, message: str, hint: str, mark: Mark | None) -> Problem:
        mark = mark or self.mark_of(path)
        return Problem(mark.line, mark.column, render_path(path), message, hint)

    def read(self, tree: Tree, kind: mi.Type, path: Path) -> Any:
        """``tree`` as a value of ``kind``, or INVALID after a complaint."""
        if isinstance(kind, mi.Metadata):
            return self.read(tree, kind.type, path)
        if isinstance(kind, mi.UnionType):
            return self._union(tree, kind, path)
        if isinstance(kind, mi.StructType):
            return self._struct(tree, kind, path)
        if isinstance(kind, mi.DictType):
            return self._dict(tree, kind, path)
        if isinstance(kind, mi.VarTupleType | mi.ListType):
            return self._list(tree, kind, path)
        if isinstance(kind, mi.AnyType):
            return self._any(tree, path)
        return self._scalar(tree, kind, path)

    # Collections.

    def _struct(self, tree: Tree, kind: mi.StructType, path: Path) -> Any:
        if not isinstance(tree, MappingTree):
            self.problem(path, f"expected a mapping, found {kind_of(tree)}", _keys_hint(kind), tree.mark)
            return INVALID
        fields, files = _layout(kind)
        values: dict[str, Any] = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
        known = [*fields, *files, *values]
        for key, entry in self._entries(tree, known, path).items():
            here = (*path, key)
            item = self._substituted(entry.value, here)
            if key == kind.tag_field or (isinstance(item, Scalar) and item.is_null):
                continue  # a key with nothing behind it is no key
            if key in files:
                self._secret_file(item, files[key], here, values)
            elif key in values:
                self.problem(here, f"{key} and {file_key(key)} are both set", "keep one")
            else:
                values[key] = INVALID if item is None else self.read(item, fields[key].type, here)
        usable = self._complete(fields, values, path, tree.mark)
        return {key: value for key, value in values.items() if value is not INVALID} if usable else INVALID

    def _entries(self, tree: MappingTree, known: list[str], path: Path) -> dict[str, Entry]:
        """What is there, by its proper key; keys that nobody knows are complained about."""
        entries = {}
        for key, entry in tree.entries.items():
            if self._tolerant and key not in known:
                continue
            proper = key if key in known else _old_spelling(key, known)
            if not proper:
                self.problem((*path, key), f"unknown key {show(key)}", one_of(key, known), entry.mark)
                continue
            if proper != key and proper in tree.entries:
                self.problem((*path, key), f"{key} and {proper} are both set", f"keep {proper}", entry.mark)
                continue
            if proper != key:
                self.warn((*path, key), f"{key} is an old spelling", f"write {proper}", entry.mark)
            self.marks[(*path, proper)] = entry.mark
            entries[proper] = entry
        return entries

    def _complete(
        self, fields: Mapping[str, mi.Field], values: Mapping[str, Any], path: Path, mark: Mark
    ) -> bool:
        """Whether every required key has a value; those that are not there are complained about."""
        required = [name for name, field in fields.items() if field.required]
        for name in (name for name in required if name not in values):
            hint = f"or {file_key(name)}, a file to read it from" if is_secret(fields[name].type) else ""
            self.problem((*path, name), "is required", hint, self.marks.get(path, mark))
        return all(values.get(name, INVALID) is not INVALID for name in required)

    def _secret_file(self, tree: Tree | None, name: str, path: Path, values: dict[str, Any]) -> None:
        if name in values:
            self.problem(path, f"{name} and {path[-1]} are both set", "keep one")
        elif tree is None:
            values[name] = INVALID
        else:
            values[name] = self._secret_from(tree, path)

    def _secret_from(self, tree: Tree, path: Path) -> Any:
        if not isinstance(tree, Scalar) or not tree.text:
            self.problem(path, f"expected the name of a file, found {kind_of(tree)}")
            return INVALID
        text = self.file_text(tree.text, path)
        return INVALID if text is None else Secret(text.removesuffix("\n").removesuffix("\r"))

    def _dict(self, tree: Tree, kind: mi.DictType, path: Path) -> Any:
        if not isinstance(tree, MappingTree):
            self.problem(path, f"expected a mapping of names, found {kind_of(tree)}", "", tree.mark)
            return INVALID
        values = {}
        for entry in tree.entries.values():
            here = (*path, entry.key)
            self.marks[here] = entry.mark
            item = self._substituted(entry.value, here)
            values[entry.key] = INVALID if item is None else self.read(item, kind.value_type, here)
        return {key: value for key, value in values.items() if value is not INVALID}

    def _list(self, tree: Tree, kind: mi.VarTupleType | mi.ListType, path: Path) -> Any:
        if not isinstance(tree, Sequence):
            self.problem(path, f"expected a list, found {kind_of(tree)}", "begin each item with -", tree.mark)
            return INVALID
        values = []
        for index, item in enumerate(tree.items):
            here = (*path, index)
            self.marks[here] = item.mark
            text = self._substituted(item, here)
            values.append(INVALID if text is None else self.read(text, kind.item_type, here))
        kept = [index for index, value in enumerate(values) if value is not INVALID]
        if len(kept) < len(values):
            self._kept[path] = kept
        return [values[index] for index in kept]

    def _union(self, tree: Tree, kind: mi.UnionType, path: Path) -> Any:
        if isinstance(tree, Scalar) and tree.is_null and any(isinstance(t, mi.NoneType) for t in kind.types):
            return None
        choices = [item for item in kind.types if not isinstance(item, mi.NoneType)]
        if len(choices) == 1:
            return self.read(tree, choices[0], path)
        return self._tagged(tree, [item for item in choices if isinstance(item, mi.StructType)], path)

    def _tagged(self, tree: Tree, choices: list[mi.StructType], path: Path) -> Any:
        by_tag = {str(choice.tag): choice for choice in choices}
        field = choices[0].tag_field or "type"
        here = (*path, field)
        if not isinstance(tree, MappingTree):
            message = f"expected a mapping with {field}, found {kind_of(tree)}"
            self.problem(path, message, one_of("", list(by_tag), field), tree.mark)
            return INVALID
        entry = tree.entries.get(field)
        if entry is None:
            self.problem(here, "is required", one_of("", list(by_tag)), self.marks.get(path, tree.mark))
            return INVALID
        tag = self._substituted(entry.value, here)
        if not isinstance(tag, Scalar):
            if tag is not None:
                self.problem(here, f"expected a word, found {kind_of(tag)}", "", entry.mark)
            return INVALID
        text = tag.text
        if tag.is_null and "null" in by_tag:
            self.warn(here, "a bare null is YAML's nothing, not a word", 'write type: "null"', entry.mark)
            text = "null"
        text = self._todays(tag, list(by_tag), here) or text
        if text not in by_tag:
            message = f"{self._shown(tag)} is not a known {field}"
            self.problem(here, message, one_of(text, list(by_tag)), entry.mark)
            return INVALID
        return self._struct(tree, by_tag[text], path)

    # Scalars.

    def _substituted(self, tree: Tree, path: Path) -> Tree | None:
        """The tree itself, a scalar with its variables replaced; None after a complaint."""
        if not isinstance(tree, Scalar) or tree.substituted or "${" not in tree.text:
            return tree
        try:
            text = substitute(tree.text, self._environ)
        except SubstitutionError as error:
            self.problem(path, str(error), error.hint, tree.mark)
            return None
        return Scalar(tree.mark, text, tree.plain, substituted=True)

    def _shown(self, scalar: Scalar) -> str:
        """A value for a message; what came from the environment is not shown."""
        if scalar.substituted:
            return "what the environment gives"
        return "nothing" if scalar.is_null else show(scalar.text)

    def _scalar(self, tree: Tree, kind: mi.Type, path: Path) -> Any:
        word = _expected(kind)
        if not isinstance(tree, Scalar):
            self.problem(path, f"expected {word}, found {kind_of(tree)}", "", tree.mark)
            return INVALID
        if tree.is_null:
            self.problem(path, f"expected {word}, found nothing", 'write "" for an empty text', tree.mark)
            return INVALID
        if isinstance(kind, mi.CustomType):
            return Secret(tree.text)
        if isinstance(kind, mi.LiteralType):
            return self._literal(tree, kind, path)
        value = _convert(tree.text, kind)
        complaint = f"expected {word}, found {self._shown(tree)}" if value is INVALID else ""
        complaint = complaint or _out_of_bounds(value, kind)
        if complaint:
            self.problem(path, complaint, "", tree.mark)
            return INVALID
        return value

    def _literal(self, tree: Scalar, kind: mi.LiteralType, path: Path) -> Any:
        words = [str(value) for value in kind.values]
        if tree.text in words:
            return tree.text
        if todays := self._todays(tree, words, path):
            return todays
        hint = one_of("" if tree.substituted else tree.text, words)
        self.problem(path, f"{self._shown(tree)} is not one of the known values", hint, tree.mark)
        return INVALID

    def _todays(self, scalar: Scalar, words: list[str], path: Path) -> str:
        """The known word that this one, in snake_case, was before; empty when it is not an old spelling."""
        if scalar.text in words or not (proper := _old_spelling(scalar.text, words)):
            return ""
        self.warn(path, f"{self._shown(scalar)} is an old spelling", f"write {proper}", scalar.mark)
        return proper

    def _any(self, tree: Tree, path: Path) -> Any:
        """A value that no type describes: as YAML itself reads it."""
        self.marks.setdefault(path, tree.mark)
        if isinstance(tree, MappingTree):
            pairs = {entry.key: self._any(entry.value, (*path, entry.key)) for entry in tree.entries.values()}
            return {key: value for key, value in pairs.items() if value is not INVALID}
        if isinstance(tree, Sequence):
            items = [self._any(item, (*path, index)) for index, item in enumerate(tree.items)]
            return [item for item in items if item is not INVALID]
        scalar = self._substituted(tree, path)
        if not isinstance(scalar, Scalar):
            return INVALID
        value = plain_value(scalar)
        if isinstance(value, float) and not math.isfinite(value):
            self.problem(path, f"{self._shown(scalar)} is not a number that can be kept", "", tree.mark)
            return INVALID
        return value


def _convert(text: str, kind: mi.Type) -> Any:
    """``text`` as a bool, int, float or str; INVALID when it is not one."""
    if isinstance(kind, mi.StrType):
        return text
    text = text.strip()
    if isinstance(kind, mi.BoolType):
        return _BOOLS.get(text.lower(), INVALID)
    if isinstance(kind, mi.IntType):
        return int(text) if _INT.match(text) and len(text) < 40 else INVALID
    try:
        value = float(text)
    except ValueError:
        return INVALID
    return value if math.isfinite(value) else INVALID


def _out_of_bounds(value: Any, kind: mi.Type) -> str:
    if isinstance(kind, mi.IntType | mi.FloatType):
        if kind.ge is not None and value < kind.ge:
            return f"must be at least {kind.ge:g}"
        if kind.le is not None and value > kind.le:
            return f"must be at most {kind.le:.15g}"
    if isinstance(kind, mi.StrType) and kind.min_length and len(value) < kind.min_length:
        return "must not be empty"
    return ""


def _expected(kind: mi.Type) -> str:
    if isinstance(kind, mi.BoolType):
        return "true or false"
    if isinstance(kind, mi.IntType):
        return "a whole number"
    if isinstance(kind, mi.FloatType):
        return "a number"
    if isinstance(kind, mi.LiteralType):
        return "a word"
    if isinstance(kind, mi.CustomType):
        return "a secret"
    return "a text"


def is_secret(kind: mi.Type) -> bool:
    """Whether a field of this type holds one secret, so that it can also be read from a file."""
    if isinstance(kind, mi.Metadata):
        return is_secret(kind.type)
    if isinstance(kind, mi.UnionType):
        return any(is_secret(item) for item in kind.types)
    return isinstance(kind, mi.CustomType) and kind.cls is Secret


_LAYOUTS: dict[type[Struct], tuple[dict[str, mi.Field], dict[str, str]]] = {}


def _layout(kind: mi.StructType) -> tuple[dict[str, mi.Field], dict[str, str]]:
    """The fields of a struct by their keys, and the key of each secret by the key that names its file."""
    found = _LAYOUTS.get(kind.cls)
    if found is None:
        fields = {field.encode_name: field for field in kind.fields}
        files = {file_key(name): name for name, field in fields.items() if is_secret(field.type)}
        found = _LAYOUTS[kind.cls] = (fields, files)
    return found


def file_key(name: str) -> str:
    """The key that names a file for a secret: ``passwordFile``, ``api_key_file``."""
    return f"{name}_file" if "_" in name else f"{name}File"


def _old_spelling(key: str, known: Iterable[str]) -> str:
    """The camelCase key that a snake_case ``key`` stands for, if any."""
    if "_" not in key:
        return ""
    head, *rest = key.split("_")
    camel = head + "".join(word.capitalize() for word in rest)
    return camel if camel in known else ""


def _keys_hint(kind: mi.StructType) -> str:
    return "keys: " + ", ".join(field.encode_name for field in kind.fields[:8])


def type_of(struct: type[Struct]) -> mi.StructType:
    """The type information of a struct."""
    kind = mi.type_info(struct)
    assert isinstance(kind, mi.StructType)
    return kind
