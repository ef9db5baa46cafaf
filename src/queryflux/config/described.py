"""What the structs say about themselves: their fields, their docstrings, the text under each field."""

import ast
import inspect
import textwrap
from functools import cache

from msgspec import Struct
from msgspec.structs import FieldInfo, fields


def summary(struct: type[Struct]) -> str:
    """The docstring of a struct, on one line, in Markdown."""
    return " ".join(inspect.cleandoc(struct.__doc__ or "").split()).replace("``", "`")


@cache
def fields_of(struct: type[Struct]) -> tuple[FieldInfo, ...]:
    """The fields of a struct; to find them out takes longer than to write one of its values down."""
    return fields(struct)


@cache
def field_texts(struct: type[Struct]) -> dict[str, str]:
    """The text of each field by its inner name, on one line; a subclass's own text wins."""
    texts: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if cls in (Struct, object):
            continue
        try:
            source = textwrap.dedent(inspect.getsource(cls))
        except (OSError, TypeError):
            continue  # An install without sources has no texts; nothing but documents needs them.
        texts.update(_texts(ast.parse(source).body[0]))
    return texts


def _texts(node: ast.stmt) -> dict[str, str]:
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(field, ast.AnnAssign)
            assert isinstance(field.target, ast.Name)
            texts[field.target.id] = " ".join(str(after.value.value).split())
    return texts
