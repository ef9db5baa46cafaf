"""``/openapi.json``, made of the endpoints that the routes are made of."""

import re
from collections.abc import Sequence
from typing import Any

from queryflux.controlplane.bodies import Body, Key
from queryflux.controlplane.endpoints import Endpoint, Param

_PART = re.compile(r"\{(\w+)(?::\w+)?\}")
_TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "secret": {"type": "string", "format": "password", "writeOnly": True},
    "integer": {"type": "integer", "minimum": 0},
    "number": {"type": "number", "minimum": 0},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "list": {"type": "array", "items": {}},
    "texts": {"type": "array", "items": {"type": "string"}},
}
_PROBLEM = {
    "type": "object",
    "required": ["title", "status", "code", "detail", "problems"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "stable; for programs"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "message": {"type": "string"},
                    "hint": {"type": "string"},
                },
            },
        },
    },
}


def openapi(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    bodies = {it.body.name: _schema(it.body) for it in endpoints if it.body and not it.partial}
    for endpoint in endpoints:
        path = paths.setdefault(documented(endpoint.path), {})
        path[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "QueryFlux admin API", "version": version},
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "schemas": {"Problem": _PROBLEM, **dict(sorted(bodies.items()))},
        },
        "security": [{"basic": []}],
    }


def documented(path: str) -> str:
    """A route's path as OpenAPI writes it."""
    return _PART.sub(r"{\1}", path)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": endpoint.summary}
    names = _PART.findall(endpoint.path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    parameters += [_parameter(param) for param in endpoint.params]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.public:
        operation["security"] = []
    if endpoint.body is not None:
        schema = _schema(endpoint.body, partial=True) if endpoint.partial else _reference(endpoint.body.name)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    responses: dict[str, Any] = {}
    for status, what in endpoint.answers.items():
        responses[str(status)] = {"description": what}
        if status != 204:
            responses[str(status)]["content"] = {endpoint.media_type: {}}
    if not endpoint.public:
        responses["default"] = {
            "description": "why it was not done",
            "content": {"application/problem+json": {"schema": _reference("Problem")}},
        }
    operation["responses"] = responses
    return operation


def _parameter(param: Param) -> dict[str, Any]:
    schema = dict(_TYPES[param.kind])
    if param.values:
        schema["enum"] = list(param.values)
    if param.default is not None:
        schema["default"] = param.default
    return {"name": param.name, "in": "query", "description": param.what, "schema": schema}


def _schema(body: Body, *, partial: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": body.any_keys,
        "properties": {key.name: _property(key, nullable=partial or key.nullable) for key in body.keys},
    }
    if required := [key.name for key in body.keys if key.required and not partial]:
        schema["required"] = required
    return schema


def _property(key: Key, *, nullable: bool) -> dict[str, Any]:
    schema = dict(_TYPES[key.kind])
    if nullable:
        schema["type"] = [schema["type"], "null"]
    return {**schema, "description": key.what}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
