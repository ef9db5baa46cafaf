"""The tables of docs/configuration.md, made from the structs: every key, its type, its default, its meaning.

``python -m queryflux.config.reference docs/configuration.md`` writes them into the page, between two marks.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec.inspect as mi
from msgspec import NODEFAULT, Struct

from queryflux.config.described import field_texts, summary
from queryflux.config.root import RootConfig
from queryflux.config.unavailable import UNAVAILABLE, word
from queryflux.config.walk import is_secret, type_of
from queryflux.model.secret import Secret

BEGIN = "<!-- reference: begin -->"
END = "<!-- reference: end -->"
NOT_YET = "These keys are known and refused by name, unless they are left out or hold an accepted value."


def render() -> str:
    """The tables, one for each struct, in the order in which the root reaches them."""
    paths: dict[type[Struct], list[str]] = {}
    kinds: dict[type[Struct], mi.StructType] = {}
    for path, kind in _structs():
        kinds.setdefault(kind.cls, kind)
        paths.setdefault(kind.cls, []).append(path)
    return "\n\n".join(_section(paths[cls], kind) for cls, kind in kinds.items())


def render_unavailable() -> str:
    """What is refused at load in this version."""
    rows = []
    for feature in UNAVAILABLE:
        off = ", ".join(f"`{word(value)}`" for value in feature.off if value != "")
        rows.append(f"| `{feature.pattern}` | {feature.what} | {off or 'leave it out'} |")
    return "\n".join(["| key | feature | accepted values |", "|---|---|---|", *rows])


def put_into(page: str) -> str:
    """``page`` with the tables between its marks. Raises ValueError when a mark is missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} or no {END}")
    tables = f"{render()}\n\n## Not available in this version\n\n{NOT_YET}\n\n{render_unavailable()}"
    return f"{head}{BEGIN}\n\n{tables}\n\n{END}{tail}"


def _structs() -> Iterator[tuple[str, mi.StructType]]:
    """Each struct at each of its paths, looked into only the first time."""
    seen: set[type[Struct]] = set()
    waiting: list[tuple[str, mi.StructType]] = [("", type_of(RootConfig))]
    while waiting:
        path, kind = waiting.pop(0)
        yield path, kind
        if kind.cls in seen:
            continue
        seen.add(kind.cls)
        children = [
            child
            for field in kind.fields
            for child in _inside(field.type, f"{path}.{field.encode_name}".lstrip("."))
        ]
        waiting = [*children, *waiting]


def _inside(kind: mi.Type, path: str) -> Iterator[tuple[str, mi.StructType]]:
    if isinstance(kind, mi.Metadata):
        yield from _inside(kind.type, path)
    elif isinstance(kind, mi.UnionType):
        for item in kind.types:
            yield from _inside(item, path)
    elif isinstance(kind, mi.DictType):
        yield from _inside(kind.value_type, f"{path}.<name>")
    elif isinstance(kind, mi.VarTupleType):
        yield from _inside(kind.item_type, f"{path}[]")
    elif isinstance(kind, mi.StructType):
        yield path, kind


def _section(paths: list[str], kind: mi.StructType) -> str:
    title = f"`{paths[0]}`" if paths[0] else "The file"
    if kind.tag_field is not None:
        title += f" with `{kind.tag_field}: {_quoted(str(kind.tag))}`"
    lines = [f"### {title}", "", summary(kind.cls)]
    if others := list(dict.fromkeys(paths[1:])):
        lines += ["", "Also:", *(f"`{path}`" for path in others)]
    if kind.fields:
        texts = field_texts(kind.cls)
        rows = [_row(field, texts.get(field.name, "")) for field in kind.fields]
        lines += ["", "| key | type | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join(lines)


def _row(field: mi.Field, text: str) -> str:
    cells = (f"`{field.encode_name}`", _type(field.type), _default(field), text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _quoted(word: str) -> str:
    return f'"{word}"' if word == "null" else word


def _type(kind: mi.Type) -> str:
    if isinstance(kind, mi.Metadata):
        return _type(kind.type)
    if isinstance(kind, mi.UnionType):
        words = [_type(item) for item in kind.types if not isinstance(item, mi.NoneType)]
        return words[0] if len(set(words)) == 1 else " or ".join(words)
    if is_secret(kind):
        return "secret"
    if isinstance(kind, mi.LiteralType):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, mi.DictType):
        return f"map of {_type(kind.value_type)}"
    if isinstance(kind, mi.VarTupleType):
        return f"list of {_type(kind.item_type)}"
    return _SIMPLE.get(type(kind), "block")


_SIMPLE: dict[type[mi.Type], str] = {
    mi.StrType: "text",
    mi.BoolType: "true/false",
    mi.IntType: "integer",
    mi.FloatType: "number",
    mi.AnyType: "anything",
}


def _default(field: mi.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if value is NODEFAULT:
        return "empty"
    if value is None:
        return ""
    if isinstance(value, Secret):
        return f"`{value.reveal()}`"
    if isinstance(value, Struct):
        tag = value.__struct_config__.tag
        return f"`{_quoted(str(tag))}`" if tag else ""
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "empty"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value == "":
        return "empty"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(put_into(target.read_text(encoding="utf-8")), encoding="utf-8")
