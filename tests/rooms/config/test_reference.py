"""The reference page, the schema and the examples agree with the structs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec.inspect as mi
import pytest
import yaml

from queryflux.auth.passwords import parse_password
from queryflux.config.described import field_texts
from queryflux.config.loader import load_file
from queryflux.config.reference import put_into
from queryflux.config.root import RootConfig
from queryflux.config.schema import json_schema
from queryflux.config.walk import type_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "configuration.md"
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


def structs() -> dict[str, mi.StructType]:
    """Every struct that a file can reach, by name."""
    found: dict[str, mi.StructType] = {}
    waiting: list[mi.Type] = [type_of(RootConfig)]
    while waiting:
        kind = waiting.pop()
        waiting.extend(_inside(kind))
        if isinstance(kind, mi.StructType) and kind.cls.__name__ not in found:
            found[kind.cls.__name__] = kind
            waiting.extend(field.type for field in kind.fields)
    return found


def _inside(kind: mi.Type) -> Iterator[mi.Type]:
    if isinstance(kind, mi.Metadata):
        yield kind.type
    elif isinstance(kind, mi.UnionType):
        yield from kind.types
    elif isinstance(kind, mi.DictType):
        yield kind.value_type
    elif isinstance(kind, mi.VarTupleType):
        yield kind.item_type


def test_the_page_is_what_the_structs_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    again = "run python -m queryflux.config.reference docs/configuration.md"
    assert put_into(page) == page, again


def test_every_key_is_on_the_page_and_says_what_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind in structs().values():
        texts = field_texts(kind.cls)
        for field in kind.fields:
            assert texts.get(field.name), f"{kind.cls.__name__}.{field.name} has no text"
            assert f"| `{field.encode_name}` |" in page
            assert texts[field.name].replace("|", "\\|") in page


def test_the_schema_has_every_key_and_no_loose_end() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    for name, kind in structs().items():
        properties = definitions[name]["properties"]
        assert {field.encode_name for field in kind.fields} <= properties.keys()
        assert definitions[name]["additionalProperties"] is False
    text = json.dumps(schema)
    assert set(re.findall(r'"#/\$defs/(\w+)"', text)) == set(definitions)
    assert definitions["StaticUser"]["properties"]["passwordFile"]["type"] == "string"
    assert "required" not in definitions["StaticUser"]


def test_the_schema_shows_no_default_of_a_secret() -> None:
    admin = json_schema()["$defs"]["AdminApiConfig"]["properties"]
    assert "default" not in admin["password"]
    assert admin["port"]["default"] == 9000


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_load_without_a_warning(path: Path) -> None:
    names = re.findall(r"\$\{(\w+)\}", path.read_text(encoding="utf-8"))
    environ = dict.fromkeys(names, "sesame-of-forty-thieves") | {
        "DATA_DIR": str(path.parent),
        "DATABASE_URL": "postgres://db/queryflux",
        "SALES_DB": str(path),  # there, which is all that is looked at
    }
    loaded = load_file(path, environ, None, _bad_password)
    assert not loaded.warnings
    assert loaded.config.cluster_groups or loaded.config.queryflux.role == "worker"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_fit_the_schema(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert not list(_misfits(data, json_schema(), json_schema()["$defs"], ""))


def test_the_user_of_the_example_has_the_password_that_is_written_there() -> None:
    loaded = load_file(ROOT / "examples" / "static-users.yaml", {"REPORTS_PASSWORD": "x"})
    stored = parse_password(loaded.config.auth.static_users.users["ada"].password.reveal())
    assert stored.accepts(b"lovelace")
    assert not stored.accepts(b"byron")


def _bad_password(stored: str) -> str | None:
    try:
        parse_password(stored)
    except ValueError as error:
        return str(error)
    return None


def _misfits(value: Any, schema: Any, definitions: Any, path: str) -> Iterator[str]:
    """As much of JSON Schema as ours uses."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(any(_misfits(value, choice, definitions, path)) for choice in schema["anyOf"]):
            yield f"{path}: fits no choice"
        return
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
    }
    kind = kinds.get(schema.get("type", ""), object)
    fixed = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    if not isinstance(value, kind) or value not in fixed:
        yield f"{path}: {value!r}"
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        yield from (f"{path}.{key}: missing" for key in schema.get("required", ()) if key not in value)
        for key, item in value.items():
            further = known.get(key, schema.get("additionalProperties", {}))
            if further is False:
                yield f"{path}.{key}: unknown"
            else:
                yield from _misfits(item, further, definitions, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _misfits(item, schema.get("items", {}), definitions, f"{path}[]")
