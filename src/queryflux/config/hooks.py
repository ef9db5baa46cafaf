"""msgspec's hooks for the types it does not know."""

from typing import Any

from queryflux.model.secret import MASK, Secret


def decode_hook(kind: type, value: Any) -> Any:
    """For ``msgspec.convert`` and decoders: a Secret from a string. Raises TypeError for anything else."""
    if kind is Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return Secret(value)
    raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")


def encode_hook(value: Any) -> Any:
    """For ``msgspec.to_builtins`` and encoders: a mask for a Secret. Raises TypeError for anything else."""
    if isinstance(value, Secret):
        return MASK
    raise TypeError(f"{type(value).__name__} is not part of a configuration")
