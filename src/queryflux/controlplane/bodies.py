"""Bodies of requests: which keys they have, and what must stand behind each. The same tables make the API's
document (openapi.py).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queryflux.config.document import MAX_DEPTH
from queryflux.config.problems import Path, Problem, one_of, render_path, show
from queryflux.controlplane.errors import Refused

KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "secret": (str,),
    "integer": (int,),
    "number": (int, float),
    "flag": (bool,),
    "object": (dict,),
    "list": (list,),
    "texts": (list,),
}
MOST = 2**63 - 1
"""No number of a body is larger, and none is negative."""
WORDS = {
    "text": "a text",
    "secret": "a text",
    "integer": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "object": "an object",
    "list": "a list",
    "texts": "a list of texts",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a body. ``nullable``: null may stand there, and means none."""

    name: str
    kind: str
    what: str
    required: bool = False
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """The keys of a body; others are refused, each with the nearest known one. ``any_keys``: it is a section
    of the configuration, which knows its keys itself."""

    name: str
    keys: tuple[Key, ...]
    any_keys: bool = False

    def key(self, name: str) -> Key | None:
        """The key of that name."""
        return next((key for key in self.keys if key.name == name), None)


def check_body(document: Any, body: Body, *, partial: bool = False) -> dict[str, Any]:
    """``document``, which has the keys of ``body`` and no others. ``partial``: nothing is required, and null
    may stand anywhere. Raises Refused with every problem at once."""
    if not isinstance(document, dict):
        raise Refused(f"the body must be a JSON object, not {_found(document)}")
    if body.any_keys:
        return document
    problems = []
    for name, value in document.items():
        key = body.key(name)
        if key is None:
            known = [it.name for it in body.keys]
            problems.append(_problem((name,), f"unknown key {show(name)}", one_of(name, known)))
        elif value is None:
            if not (partial or key.nullable):
                problems.append(_problem((name,), f"expected {WORDS[key.kind]}, found null"))
        elif not _fits(value, key.kind):
            message = f"expected {WORDS[key.kind]}, found {_found(value)}"
            problems.append(_problem((name,), message))
    if not partial:
        missing = (key.name for key in body.keys if key.required and key.name not in document)
        problems += [_problem((name,), "is required") for name in missing]
    if problems:
        raise Refused("the body is not what this path takes", problems=problems)
    return document


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. Raises Refused when it is not one, says a key twice, is nested too deeply,
    or has numbers or characters that JSON or Unicode do not have."""
    if not data.strip():
        raise Refused("the body is empty", hint="send a JSON object")
    try:
        value = json.loads(data, object_pairs_hook=_pairs, parse_constant=_constant)
        if rb"\ud" in data.lower():  # half of a pair, which no text that we store or hash may have
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused("the body is not JSON: half a surrogate pair is no character") from None
    except (ValueError, RecursionError) as error:
        text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(f"the body is not JSON: {text}") from None
    if _deeper_than(value, MAX_DEPTH):
        raise Refused(f"the body is nested more than {MAX_DEPTH} levels deep")
    return value


def _pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {show(twice)} is set twice")
    return document


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _deeper_than(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(child, levels - 1) for child in children)


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "flag"
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if isinstance(value, int | float) and not 0 <= value <= MOST:
        return False
    return isinstance(value, KINDS[kind])


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a text"
    return "a negative number" if value < 0 else "too large a number" if value > MOST else "a number"


def _problem(path: Path, message: str, hint: str = "") -> Problem:
    return Problem(0, 0, render_path(path), message, hint)
