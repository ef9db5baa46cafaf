"""What scripts may take."""

import json
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from queryflux.config.scripts import Script

LENGTH = struct.Struct(">I")
MIB = 1 << 20
COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("child.py")))
ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""All of it: nothing of ours, which may hold secrets."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the process that runs scripts may take; sizes in bytes."""

    call_secs: float = 0.25
    """One call, in time of the clock."""
    compile_secs: float = 10.0
    """Compiling all scripts, with what they import."""
    queue_secs: float = 5.0
    """Waiting for the calls before."""
    memory_bytes: int = 1024 * MIB
    """Address space."""
    max_result: int = 32 * MIB
    """What a call gives."""
    max_output: int = 8192
    """What a call prints, as far as it is logged."""


class Text(NamedTuple):
    """A script with the place it comes from, such as ``routers[2].script``."""

    place: str
    script: Script


def first_message(texts: Sequence[Text], limits: Limits) -> bytes:
    """What a child is told first."""
    settings = {
        "scripts": [
            [text.place, text.script.function, text.script.arguments, text.script.body] for text in texts
        ],
        "parent": os.getpid(),
        "call_secs": limits.call_secs,
        "compile_secs": limits.compile_secs,
        "memory_bytes": limits.memory_bytes,
        "max_result": limits.max_result,
        "max_output": limits.max_output,
    }
    return framed(settings)


def framed(message: Any) -> bytes:
    """A message with its length."""
    data = json.dumps(message).encode()
    return LENGTH.pack(len(data)) + data


def briefly(reply: dict[str, Any]) -> str:
    """The same without an exception's own words, which may show data."""
    return said({**reply, "error": reply.get("kind") or reply["error"]})


def said(reply: dict[str, Any]) -> str:
    """What a child complains about, on one line."""
    line = reply.get("line")
    return f"line {line}: {reply['error']}" if line else str(reply["error"])
