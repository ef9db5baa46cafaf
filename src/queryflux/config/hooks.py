"""msgspec's hooks for the types it does not know."""

from typing import Any

from queryflux.model.secret import Secret


def decode_hook(kind: type, value: Any) -> Any:
    """For ``msgspec.convert`` and decoders: a Secret from a string. Raises TypeError for anything else."""
    if kind is Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return Secret(value)
    raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
