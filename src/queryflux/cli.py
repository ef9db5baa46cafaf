"""The command line: arguments to a role, nothing else."""

import argparse
import getpass
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from queryflux import __version__
from queryflux.model.errors import QueryFluxError

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status: 0 done, 1 the command found a fault, 2 wrong arguments."""
    options = parser().parse_args(arguments)
    try:
        return int(COMMANDS[options.command](options))
    except QueryFluxError as error:
        print(f"queryflux: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="queryflux", description="One front door for SQL.")
    top.add_argument("--version", action="version", version=f"queryflux {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve queries from a configuration file or a folder of data")
    source = serve.add_mutually_exclusive_group(required=True)
    source.add_argument("-c", "--config", type=Path, metavar="FILE", help="YAML configuration")
    source.add_argument("--data", type=Path, metavar="DIR", help="folder of .parquet, .csv and .json files")
    _folder_options(serve)

    demo = commands.add_parser("demo", help="make TPC-H data, serve it, and query it through every door")
    demo.add_argument("--check", action="store_true", help="exit after the queries: 0 if all were right")
    demo.add_argument("--dir", type=Path, default=Path(".demo"), metavar="DIR", help="where the data goes")
    _folder_options(demo)

    validate = commands.add_parser("validate", help="find every problem of a configuration file")
    validate.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
    validate.add_argument("--json", action="store_true", help="one JSON document instead of lines")

    commands.add_parser("config-schema", help="JSON Schema of the configuration, for editors")

    hashing = commands.add_parser("hash-password", help="make a verifier for auth.staticUsers")
    hashing.add_argument(
        "--kind",
        choices=["scram", "sha2", "bcrypt"],
        default="scram",
        help="scram (every door), sha2 or bcrypt (every door, PostgreSQL over TLS only); default: scram",
    )
    return top


def _folder_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    for name, (flag, usual) in PORT_FLAGS.items():
        text = f"port of {name} (default: {usual}, or a free one when it is taken)"
        command.add_argument(f"--{flag}-port", type=int, metavar="PORT", dest=name, help=text)


PORT_FLAGS = {
    "trinoHttp": ("trino", 8080),
    "postgresWire": ("postgres", 5432),
    "mysqlWire": ("mysql", 3306),
    "flightSql": ("flight", 50051),
    "adminApi": ("admin", 9000),
}
"""The word in the option, and the port that is taken without it."""


def _ports(options: argparse.Namespace) -> dict[str, int | None]:
    return {name: getattr(options, name) for name in PORT_FLAGS}


def _serve(options: argparse.Namespace) -> int:
    from queryflux.app.serve import serve_file, serve_folder

    if options.config is not None:
        return serve_file(options.config, os.environ)
    return serve_folder(options.data, options.host, _ports(options))


def _demo(options: argparse.Namespace) -> int:
    from queryflux.app.demo import run_demo

    return run_demo(options.dir, options.host, _ports(options), check=options.check)


def _validate(options: argparse.Namespace) -> int:
    from queryflux.app.validate import validate_file

    report, good = validate_file(options.config, os.environ, as_json=options.json)
    print(report)
    return 0 if good else 1


def _schema(options: argparse.Namespace) -> int:
    from queryflux.config.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def _hash_password(options: argparse.Namespace) -> int:
    from queryflux.auth.hashes import HASHES

    try:
        password = _typed_password() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    except EOFError:  # Ctrl-D
        print("\nqueryflux: no password was given", file=sys.stderr)
        return USAGE_ERROR
    if password is None:
        print("queryflux: the two passwords differ", file=sys.stderr)
        return USAGE_ERROR
    if not password:
        print("queryflux: an empty password makes no verifier", file=sys.stderr)
        return USAGE_ERROR
    try:
        print(HASHES[options.kind](password))
    except ValueError as error:
        print(f"queryflux: {error}", file=sys.stderr)
        return 1
    return 0


def _typed_password() -> str | None:
    """A password typed twice; None when the two differ. Raises EOFError."""
    password = getpass.getpass("Password: ")
    return password if not password or getpass.getpass("Again: ") == password else None


COMMANDS = {
    "serve": _serve,
    "demo": _demo,
    "validate": _validate,
    "config-schema": _schema,
    "hash-password": _hash_password,
}


if __name__ == "__main__":
    sys.exit(main())
