"""Kubernetes objects held to the types of its API, without a cluster.

tests/fixtures/kubernetes.json has the fields of each type that our manifests use: ``[]X`` is a list of X,
``{}X`` a map to X, ``!`` at the end a field that must be there, ``a|b`` the words allowed. It is made from
the JSON schemas in the package kubernetes-validate, which are those of the API itself:

    pip download --no-deps kubernetes-validate==1.37.0 && unzip kubernetes_validate-*.whl
    python -m tests.kit.kubernetes FOLDER/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parents[1] / "fixtures" / "kubernetes.json"
KINDS = {
    ("v1", "ConfigMap"): "core.v1.ConfigMap",
    ("v1", "Namespace"): "core.v1.Namespace",
    ("v1", "Service"): "core.v1.Service",
    ("apps/v1", "Deployment"): "apps.v1.Deployment",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "autoscaling.v2.HorizontalPodAutoscaler",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networking.v1.NetworkPolicy",
    ("policy/v1", "PodDisruptionBudget"): "policy.v1.PodDisruptionBudget",
}
PLAIN: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "quantity": (str, int, float),
    "intOrString": (str, int),
    "any": (object,),
}
QUANTITY = re.compile(r"[+-]?\d+(\.\d+)?(m|[kMGTPE]i?|[eE][+-]?\d+)?\Z")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")


@cache
def types() -> dict[str, dict[str, str]]:
    """The fields of each type, by name."""
    known: dict[str, dict[str, str]] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return known


def problems(document: Any) -> list[str]:
    """What is wrong with one object: kinds and fields that do not exist, are missing or of another type."""
    kind = KINDS.get((document.get("apiVersion"), document.get("kind")))
    if kind is None:
        return [
            f"{document.get('apiVersion')} {document.get('kind')} is not among the kinds that are known here"
        ]
    name = document.get("metadata", {}).get("name")
    found = [] if isinstance(name, str) and NAME.match(name) else [f"metadata.name: {name!r} is no name"]
    return [*found, *_misfits(document, kind, document["kind"])]


def _misfits(value: Any, kind: str, path: str) -> Iterator[str]:
    if kind.startswith("[]"):
        if not isinstance(value, list):
            yield f"{path}: is no list"
            return
        for index, item in enumerate(value):
            yield from _misfits(item, kind[2:], f"{path}[{index}]")
    elif kind.startswith("{}"):
        if not isinstance(value, dict):
            yield f"{path}: is no mapping"
            return
        for key, item in value.items():
            yield from _misfits(item, kind[2:], f"{path}.{key}")
    elif kind in PLAIN:
        yield from _plain(value, kind, path)
    elif kind in types():
        yield from _fields(value, types()[kind], path)
    elif value not in kind.split("|"):
        yield f"{path}: {value!r} is none of {kind}"


def _plain(value: Any, kind: str, path: str) -> Iterator[str]:
    fits = isinstance(value, PLAIN[kind]) and (kind in {"boolean", "any"} or not isinstance(value, bool))
    if not fits or (kind == "quantity" and not QUANTITY.match(str(value))):
        yield f"{path}: {value!r} is no {kind}"


def _fields(value: Any, fields: Mapping[str, str], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: is no mapping"
        return
    for name, kind in fields.items():
        if kind.endswith("!") and name not in value:
            yield f"{path}.{name}: is missing"
    for name, item in value.items():
        if name not in fields:
            yield f"{path}.{name}: there is no such field"
        else:
            yield from _misfits(item, fields[name].rstrip("!"), f"{path}.{name}")


def _short(name: str) -> str:
    return name.removeprefix("io.k8s.api.").removeprefix("io.k8s.apimachinery.pkg.").replace("apis.", "")


def _kind(schema: Mapping[str, Any]) -> str:
    """A field's type in the notation above."""
    if "$ref" in schema:
        name = _short(str(schema["$ref"]).rpartition("/")[2])
        return {"util.intstr.IntOrString": "intOrString", "api.resource.Quantity": "quantity"}.get(name, name)
    of = schema.get("type", "any")
    of = next(one for one in of if one != "null") if isinstance(of, list) else of
    if "enum" in schema and of == "string":
        return "|".join(str(word) for word in schema["enum"])
    if of == "array":
        return "[]" + _kind(schema["items"])
    if of == "object":
        more = schema.get("additionalProperties")
        return "{}" + _kind(more) if isinstance(more, dict) else "any"
    return str(of)


def reduce(schemas: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the fixture holds, of the ``$defs`` of the API's schemas."""
    by_name = {_short(name): schema for name, schema in schemas.items()}
    made: dict[str, dict[str, str]] = {}
    wanted = list(KINDS.values())
    while wanted:
        name = wanted.pop()
        if name in made:
            continue
        schema = by_name[name]
        if "properties" not in schema:
            kind = _kind({key: value for key, value in schema.items() if key != "$ref"})
            assert kind in PLAIN, (name, kind)
            made[name] = {"": kind}
            continue
        required = schema.get("required", ())
        made[name] = {
            field: _kind(of) + ("!" if field in required else "")
            for field, of in schema["properties"].items()
        }
        wanted += [
            kind for of in schema["properties"].values() if (kind := _kind(of).lstrip("[]{}")) in by_name
        ]
    aliases = {name: fields[""] for name, fields in made.items() if "" in fields}
    return {
        name: {field: _plainly(kind, aliases) for field, kind in sorted(fields.items())}
        for name, fields in sorted(made.items())
        if name not in aliases
    }


def _plainly(kind: str, aliases: Mapping[str, str]) -> str:
    bare = kind.lstrip("[]{}").rstrip("!")
    return kind.replace(bare, aliases[bare]) if bare in aliases else kind


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["$defs"]
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in reduce(given).items()]
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
