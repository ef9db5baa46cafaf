"""How the command line reaches an operator port: a small YAML file, and documents written as YAML."""

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from queryflux.config.document import MAX_BYTES, parse
from queryflux.config.hooks import decode_hook
from queryflux.config.loader import read_secret_file
from queryflux.config.problems import ConfigProblems, in_order, show
from queryflux.config.walk import Reading, TooManyProblems, type_of
from queryflux.model.errors import ConfigError
from queryflux.model.secret import Secret

OTHERS = stat.S_IRWXG | stat.S_IRWXO


class AdminAccess(Struct, frozen=True, rename="camel", kw_only=True):
    """Where an operator port is, and who asks."""

    url: str | None = None
    """Such as `https://queryflux:9000`."""
    username: str | None = None
    """Name of the operator."""
    password: Secret | None = None
    """The operator's password."""
    ca_file: str | None = None
    """PEM file with the authorities to trust; absent: the system's."""


def read_access(path: Path, environ: Mapping[str, str]) -> AdminAccess:
    """Read a file that only its owner can read. Raises ConfigError when others can, when it cannot be read,
    and when it is wrong."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {show(str(path), 200)}: {error.strerror or error}") from None
    if status.st_mode & OTHERS:
        raise ConfigError(
            f"{show(str(path), 200)} is for passwords, and others can read it", hint=f"chmod 600 {path}"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{show(str(path), 200)} belongs to somebody else", hint="make a file of your own")
    reading = Reading(environ, read_secret_file)
    try:
        tree, reading.problems = parse(data)
    except ConfigProblems as found:
        raise ConfigProblems(found.problems, file=path) from None
    values: Any = {}
    with contextlib.suppress(TooManyProblems):
        values = reading.read(tree, type_of(AdminAccess), ())
    if reading.problems:
        raise ConfigProblems(in_order(reading.problems), file=path)
    return msgspec.convert(values, AdminAccess, dec_hook=decode_hook)


def as_yaml(document: Any) -> str:
    """Generic JSON as YAML that a file can hold, keys in their order."""
    text = yaml.dump(document, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=110)
    return str(text.replace("${", "$${"))
