"""From a file, or its bytes, to a checked configuration. The only place that looks at the environment."""

import os
import ssl
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from queryflux.config.checks import (
    Check,
    Context,
    check_access_control,
    check_groups,
    check_names_of_users,
    check_routing,
)
from queryflux.config.checks_clusters import check_clusters
from queryflux.config.checks_persistence import check_persistence
from queryflux.config.checks_process import (
    check_auth,
    check_listeners,
    check_open,
    check_open_in_file,
    check_retention,
)
from queryflux.config.checks_scripts import check_scripts
from queryflux.config.checks_serving import check_serving
from queryflux.config.checks_worker import check_worker
from queryflux.config.document import MAX_BYTES, parse, too_large
from queryflux.config.hooks import decode_hook
from queryflux.config.legacy import modernise
from queryflux.config.problems import ConfigProblems, Problem, in_order, show
from queryflux.config.root import RootConfig
from queryflux.config.script_files import with_script_files
from queryflux.config.scripts import CheckScripts, Script
from queryflux.config.snapshot import Snapshot, snapshot_of
from queryflux.config.unavailable import refuse_unavailable
from queryflux.config.walk import INVALID, Reading, TooManyProblems, type_of
from queryflux.model.errors import ConfigError
from queryflux.model.secret import Secret

ADMIN_USER = "QUERYFLUX_ADMIN_USER"
ADMIN_PASSWORD = "QUERYFLUX_ADMIN_PASSWORD"  # noqa: S105
INSTANCE_ID = "QUERYFLUX_INSTANCE_ID"
SHARED_CHECKS = (
    check_clusters,
    check_groups,
    check_routing,
    check_auth,
    check_names_of_users,
    check_access_control,
    check_scripts,
)
"""Those of what travels, wherever it comes from."""
CANDIDATE_CHECKS = (check_open, *SHARED_CHECKS)
"""Those of what is to be used as it is."""
CHECKS = (
    check_listeners,
    check_open_in_file,
    check_persistence,
    check_retention,
    check_serving,
    check_worker,
    *SHARED_CHECKS,
)
"""Those of a file."""
MAX_SECRET_BYTES = 1024 * 1024
MORE = Problem(0, 0, "", "there is more; only the first problems are shown", "mend these first")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used. ``config.queryflux`` is this process's own, ``snapshot`` travels."""

    config: RootConfig
    snapshot: Snapshot
    warnings: tuple[Problem, ...]


def load_file(
    path: str | Path,
    environ: Mapping[str, str] | None = None,
    check_regex: Check | None = None,
    check_password: Check | None = None,
    scripts: CheckScripts | None = None,
) -> Loaded:
    """Read and check a file. Raises ConfigError when it cannot be read, ConfigProblems (a ConfigError) when
    it is wrong, whose message names the file. See ``load_bytes`` for the rest."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        if len(data) > MAX_BYTES:
            raise too_large()
        return load_bytes(data, environ, check_regex, check_password, scripts)
    except ConfigProblems as found:
        raise ConfigProblems(found.problems, found.warnings, file=path) from None


def load_bytes(
    data: bytes,
    environ: Mapping[str, str] | None = None,
    check_regex: Check | None = None,
    check_password: Check | None = None,
    scripts: CheckScripts | None = None,
) -> Loaded:
    """Check the bytes of a YAML file. ``environ`` is this process's own unless given. ``check_regex`` and
    ``check_password`` say what is wrong with a pattern, and with a stored password; they come from outside,
    because the libraries that know live in other rooms; ``scripts`` says the same of all scripts at once, and
    without it they are compiled when the configuration is used. Raises ConfigProblems with every problem at
    once."""
    environ = os.environ if environ is None else environ
    reading = Reading(environ, read_secret_file)
    config = RootConfig()
    tree, reading.problems = parse(data)
    try:
        values = reading.read(modernise(tree, reading), _ROOT, ())
        values = {} if values is INVALID else values
        refuse_unavailable(values, reading)
        with_script_files(values, reading)
        config = _with_environment(to_config(values), environ)
        run_checks(
            CHECKS, config, reading, check_regex or _fine, check_password or _fine, scripts or unchecked
        )
    except TooManyProblems:
        reading.problems.append(MORE)
    return Loaded(config, snapshot_of(config), found_sound(reading))


def run_checks(
    checks: Iterable[Callable[[Context], object]],
    config: RootConfig,
    reading: Reading,
    check_regex: Check,
    check_password: Check,
    scripts: CheckScripts,
) -> None:
    """Have ``checks`` look at a configuration, on this machine. Raises TooManyProblems."""
    context = Context(
        config,
        reading,
        check_regex,
        check_password,
        file=unreadable,
        folder=no_folder,
        key_pair=no_key_pair,
        scripts=scripts,
    )
    for check in checks:
        check(context)


def found_sound(reading: Reading) -> tuple[Problem, ...]:
    """The warnings of what was read and checked. Raises ConfigProblems with every problem."""
    warnings = tuple(in_order(reading.warnings))
    if reading.problems:
        raise ConfigProblems(in_order(reading.problems), warnings)
    return warnings


def to_config(values: Mapping[str, Any]) -> RootConfig:
    """Plain data, keys in their outer spelling, as structs. Raises msgspec.ValidationError."""
    return msgspec.convert(values, RootConfig, dec_hook=decode_hook)


def read_secret_file(name: str) -> str:
    """The text of a secret's file. Raises OSError, or ValueError when it is too large or not UTF-8."""
    with open(name, "rb") as file:
        data = file.read(MAX_SECRET_BYTES + 1)
    if len(data) > MAX_SECRET_BYTES:
        raise ValueError("it is larger than a secret can be")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def unreadable(name: str) -> str | None:
    """Why a file cannot be read; None when it can."""
    try:
        with open(name, "rb") as file:
            file.read(1)
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # a NUL byte in the name
        return str(error)
    return None


def no_folder(name: str) -> str | None:
    """Why a name is not that of a folder; None when it is."""
    try:
        return None if stat.S_ISDIR(os.stat(name).st_mode) else "not a folder"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)


def no_key_pair(cert_file: str, key_file: str) -> tuple[str, str] | None:
    """What is wrong with a server's certificate and key: the key of the configuration, and why."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return "keyFile", f"the key does not belong to the certificate in {show(cert_file, 200)}"
    except (OSError, ValueError):
        pass
    else:
        return None
    if not _has_certificate(cert_file):
        return "certFile", f"{show(cert_file, 200)} holds no certificate that can be used (PEM)"
    return (
        "keyFile",
        f"{show(key_file, 200)} holds no private key that can be used (PEM, without a passphrase)",
    )


def _has_certificate(name: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(name)
    except (OSError, ValueError):
        return False
    return True


def _with_environment(config: RootConfig, environ: Mapping[str, str]) -> RootConfig:
    """The three settings for which a variable wins over the file; an empty one is as good as none."""
    process = config.queryflux
    admin = process.admin_api
    if user := environ.get(ADMIN_USER):
        admin = msgspec.structs.replace(admin, username=user)
    if password := environ.get(ADMIN_PASSWORD):
        admin = msgspec.structs.replace(admin, password=Secret(password))
    instance = environ.get(INSTANCE_ID) or process.instance_id
    process = msgspec.structs.replace(process, admin_api=admin, instance_id=instance)
    return msgspec.structs.replace(config, queryflux=process)


def unchecked(scripts: Sequence[Script]) -> list[str]:
    """Says nothing about scripts."""
    return [""] * len(scripts)


def _fine(text: str) -> str | None:
    return None


_ROOT = type_of(RootConfig)
