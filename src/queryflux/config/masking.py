"""Secrets on their way out and back: whoever reads a configuration sees a marker in place of each, and
writing the marker back keeps what is stored there.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from queryflux.config.problems import Path, Problem, render_path
from queryflux.config.snapshot import Snapshot, document_of
from queryflux.model.secret import Secret

MARKER = "<secret>"

_SECRET_WORDS = re.compile(
    r"password|passphrase|secret|token(?!_?endpoint)|private_?key|api_?key|credential|authorization|cookie"
    r"|(^|_)uri$|kwargs$|^headers$",
    re.I,
)
"""Keys whose texts are hidden where no type says what they are (``variants[].overrides``, and a stored
configuration that is not sound)."""
_SEVERAL = re.compile(r"kwargs$|^headers$", re.I)
"""Those of mappings that may have a secret under any name."""


def masked(value: Any) -> Any:
    """A struct, or anything in one, as generic JSON with the marker for each secret."""
    document = document_of(value, _mark)
    if isinstance(value, Snapshot):
        for cluster in document.get("clusters", {}).values():
            mask_overrides(cluster)
    return document


def mask_overrides(cluster: Any) -> None:
    """Hide what looks like a secret in a cluster's variants, in place."""
    for variant in cluster.get("variants", ()):
        if "overrides" in variant:
            variant["overrides"] = masked_untyped(variant["overrides"])


def revealed(value: Any) -> Any:
    """The same with secrets in clear: for comparing and storing, never to be shown or logged."""
    return document_of(value, Secret.reveal)


def restore(document: Any, stored: Any, shown: Any) -> Any:
    """``document`` with each marker replaced by what ``stored`` (secrets in clear) has at the same place,
    where ``shown``, the same masked, has a marker too. Other markers stay, for ``leftovers`` to find."""
    if isinstance(document, Mapping):
        return {key: restore(item, _at(stored, key), _at(shown, key)) for key, item in document.items()}
    if isinstance(document, list):
        places = _places(document, shown)
        return [
            restore(item, _at(stored, at), _at(shown, at)) for item, at in zip(document, places, strict=True)
        ]
    return stored if document == MARKER and shown == MARKER else document


def leftovers(document: Any) -> list[Problem]:
    """A problem for each marker that stands where nothing was stored."""
    return [
        Problem(0, 0, render_path(path), "there is no stored secret to keep here", "write the value itself")
        for path in _markers(document, ())
    ]


def _markers(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _markers(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _markers(item, (*path, at))
    elif value == MARKER:
        yield path


def _places(document: list[Any], shown: Any) -> list[int | None]:
    """For each item, where the one stands that it was: that of the same ``name`` if it has one, else the same
    item, else that at its own place in a list which is as long as it was. None: it is new. An item never
    gets the secrets of another that was taken out before it."""
    before = shown if isinstance(shown, list) else []
    names = [it.get("name") if isinstance(it, dict) else None for it in before]
    by_name = {name: at for at, name in enumerate(names) if isinstance(name, str)}
    places: list[int | None] = []
    for at, item in enumerate(document):
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            places.append(by_name.get(item["name"]))
        elif isinstance(item, Mapping | list) and item in before:
            places.append(at if before[at : at + 1] == [item] else before.index(item))
        else:
            places.append(at if len(before) == len(document) else None)
    return places


def _at(value: Any, key: str | int | None) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return None


def _mark(secret: Secret) -> str:
    return MARKER


def masked_untyped(value: Any) -> Any:
    """Generic JSON that no type describes, with the marker for each text and number whose key sounds like a
    secret's, also in a list there; under a key of several (``headers``, ``dbKwargs``) for each of them."""
    if isinstance(value, Mapping):
        return {key: _hidden(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_untyped(item) for item in value]
    return value


def _hidden(key: str, item: Any) -> Any:
    if not _SECRET_WORDS.search(key) or isinstance(item, bool) or item is None:
        return masked_untyped(item)
    if isinstance(item, list | tuple):
        return [_hidden(key, one) for one in item]
    if isinstance(item, Mapping):
        several = _SEVERAL.search(key) is not None
        return {name: _hidden(key if several else str(name), one) for name, one in item.items()}
    return MARKER
