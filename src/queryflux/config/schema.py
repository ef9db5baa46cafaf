"""JSON Schema of a configuration file, for editors.

It describes the shape of today; old spellings, which still load, are not in it. Every single value may also
be written as text with ``${VAR}`` in it, and a secret as the name of a file.
"""

from typing import Any

import msgspec.inspect as mi

from queryflux.config.described import field_texts, summary
from queryflux.config.root import RootConfig
from queryflux.config.walk import file_key, is_secret, type_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}


def json_schema() -> dict[str, Any]:
    """The schema, as plain data for ``json.dumps``."""
    root = type_of(RootConfig)
    writer = _Writer()
    reference = writer.of(root)
    return {
        "$schema": DIALECT,
        "title": "QueryFlux configuration",
        **reference,
        "$defs": dict(sorted(writer.definitions.items())),
    }


class _Writer:
    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: mi.Type) -> dict[str, Any]:
        """The schema of one type; structs go to ``definitions``."""
        if isinstance(kind, mi.Metadata):
            return self.of(kind.type)
        if isinstance(kind, mi.UnionType):
            return self._union(kind)
        if isinstance(kind, mi.StructType):
            return self._struct(kind)
        if isinstance(kind, mi.DictType):
            return {"type": "object", "additionalProperties": self.of(kind.value_type)}
        if isinstance(kind, mi.VarTupleType | mi.ListType):
            return {"type": "array", "items": self.of(kind.item_type)}
        return _scalar(kind)

    def _union(self, kind: mi.UnionType) -> dict[str, Any]:
        choices: list[dict[str, Any]] = []
        for item in kind.types:
            schema = self.of(item)
            choices.extend(schema["anyOf"] if list(schema) == ["anyOf"] else [schema])
        return {"anyOf": choices}

    def _struct(self, kind: mi.StructType) -> dict[str, Any]:
        name = kind.cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # A struct may hold itself.
            self.definitions[name] = self._definition(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _definition(self, kind: mi.StructType) -> dict[str, Any]:
        texts = field_texts(kind.cls)
        properties: dict[str, Any] = {}
        required: list[str] = []
        if kind.tag_field is not None:
            properties[kind.tag_field] = {"const": kind.tag}
            required.append(kind.tag_field)
        for field in kind.fields:
            text = texts.get(field.name, "")
            properties[field.encode_name] = {**self.of(field.type), "description": text, **_default(field)}
            if is_secret(field.type):
                name = file_key(field.encode_name)
                properties[name] = {"type": "string", "description": f"File with {field.encode_name}."}
            elif field.required:
                required.append(field.encode_name)
        definition: dict[str, Any] = {
            "type": "object",
            "description": summary(kind.cls),
            "properties": properties,
            "additionalProperties": False,
        }
        return {**definition, "required": required} if required else definition


def _scalar(kind: mi.Type) -> dict[str, Any]:
    if isinstance(kind, mi.NoneType):
        return {"type": "null"}
    if isinstance(kind, mi.BoolType):
        return {"anyOf": [{"type": "boolean"}, _VARIABLE]}
    if isinstance(kind, mi.IntType | mi.FloatType):
        schema: dict[str, Any] = {"type": "integer" if isinstance(kind, mi.IntType) else "number"}
        if kind.ge is not None:
            schema["minimum"] = kind.ge
        if kind.le is not None:
            schema["maximum"] = kind.le
        return {"anyOf": [schema, _VARIABLE]}
    if isinstance(kind, mi.LiteralType):
        return {"anyOf": [{"enum": list(kind.values)}, _VARIABLE]}
    if isinstance(kind, mi.AnyType):
        return {}
    return {"type": "string"}


def _default(field: mi.Field) -> dict[str, Any]:
    """The default of a single value; never that of a secret."""
    value = field.default
    if isinstance(value, str | bool | int | float):
        return {"default": int(value) if isinstance(value, float) and value.is_integer() else value}
    return {}
