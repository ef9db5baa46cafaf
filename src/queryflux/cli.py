"""The command line: arguments to a role, nothing else."""

import argparse
import errno
import getpass
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from queryflux import __version__
from queryflux.model.errors import QueryFluxError

if TYPE_CHECKING:
    from queryflux.app.remote import Remote

USAGE_ERROR = 2
SEAT = "worker-seat"
USUAL_HOST = "127.0.0.1"
MOST_PORT = 65535
MOST_WORKERS = 256
WHERE_PASSWORDS_COME_FROM = (
    "It asks for the password at a terminal; elsewhere it reads a line of standard input: "
    "queryflux hash-password < FILE"
)
UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""What is wrong with the place that our output goes to."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status: 0 done, 1 the command found a fault, 2 wrong arguments."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _seat_parser().parse_args(given[1:]) if given[:1] == [SEAT] else parser().parse_args(given)
    try:
        status = int(COMMANDS[options.command](options))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except QueryFluxError as error:
        print(f"queryflux: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        _drop_output()
        return 0
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        _drop_output()
        print(f"queryflux: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """What is left of it would be tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="queryflux", description="One front door for SQL.")
    top.add_argument("--version", action="version", version=f"queryflux {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve queries from a configuration file or a folder of data")
    source = serve.add_mutually_exclusive_group(required=True)
    source.add_argument("-c", "--config", type=Path, metavar="FILE", help="YAML configuration")
    source.add_argument("--data", type=Path, metavar="DIR", help="folder of .parquet, .csv and .json files")
    serve.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help=f"processes that take the queries, one for each core to use: 1 to {MOST_WORKERS}",
    )
    _folder_options(
        serve.add_argument_group(
            "with --data", "Where it listens. With -c the file says so, and these are refused."
        )
    )

    demo = commands.add_parser("demo", help="make TPC-H data, serve it, and query it through every door")
    demo.add_argument("--check", action="store_true", help="exit after the queries: 0 if all were right")
    demo.add_argument("--dir", type=Path, default=Path(".demo"), metavar="DIR", help="where the data goes")
    _folder_options(demo)

    validate = commands.add_parser("validate", help="find every problem of a configuration file")
    validate.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
    validate.add_argument("--json", action="store_true", help="one JSON document instead of lines")

    migrate = commands.add_parser("migrate", help="bring the tables of the database up to date")
    migrate.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
    mode = migrate.add_mutually_exclusive_group()
    for name, text in MIGRATE_MODES.items():
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=text)
    migrate.set_defaults(mode="apply")

    commands.add_parser("config-schema", help="JSON Schema of the configuration, for editors")

    _hash_password_command(commands)
    _operator_commands(commands)
    return top


def _hash_password_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    hashing = commands.add_parser(
        "hash-password",
        help="make a verifier for auth.staticUsers",
        description="Make a verifier for auth.staticUsers. " + WHERE_PASSWORDS_COME_FROM,
    )
    # Taken only to be refused in words: others see the arguments of a command.
    hashing.add_argument("password", nargs="*", action=_NoPassword, help=argparse.SUPPRESS)
    hashing.add_argument(
        "--kind",
        choices=["scram", "sha2", "bcrypt"],
        default="scram",
        help="scram (every door), sha2 or bcrypt (every door, PostgreSQL over TLS only); default: scram",
    )


def _seat_parser() -> argparse.ArgumentParser:
    """How a process with --workers starts them: no command for people, who are not shown it."""
    seat = argparse.ArgumentParser(prog="queryflux worker-seat")
    seat.set_defaults(command=SEAT)
    seat.add_argument("descriptor", type=int)
    return seat


def _operator_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    config = commands.add_parser("config", help="read and edit the configuration of a running QueryFlux")
    actions = config.add_subparsers(dest="action", required=True, metavar="ACTION")
    get = actions.add_parser("get", help="show it, secrets masked")
    get.add_argument("part", nargs="?", default="", metavar="PART", help="such as clusters.east")
    diff = actions.add_parser("diff", help="say what the sections of a file would change")
    apply = actions.add_parser("apply", help="put the sections of a file in place of its own, all or nothing")
    apply.add_argument("--dry-run", action="store_true", help="the same as diff")
    for command in (diff, apply):
        command.add_argument("file", type=Path, metavar="FILE", help="YAML; - is standard input")
        command.add_argument(
            "--at", type=int, metavar="N", help="refuse unless it is still at N, as config get said"
        )
    queries = commands.add_parser("queries", help="list queries that have ended, newest first, or that run")
    queries.add_argument("--running", action="store_true", help="those that run or wait in that process")
    for name, text in QUERY_FILTERS.items():
        queries.add_argument(f"--{name}", metavar=name.upper(), help=text)
    queries.add_argument("--limit", type=int, default=20, metavar="N", help="at most N (default: 20)")
    cancel = commands.add_parser("cancel", help="cancel a query")
    cancel.add_argument("id", metavar="ID", help="its id, ours or its engine's")
    status = commands.add_parser("status", help="show a control plane and its workers at a glance")
    for command in (get, diff, apply, queries, cancel, status):
        _operator_options(command)
        if command is not cancel:
            command.add_argument("--json", action="store_true", help="JSON, for programs")


def _operator_options(command: argparse.ArgumentParser) -> None:
    where = command.add_argument_group("the operator port")
    where.add_argument("--url", metavar="URL", help="where it is; else QUERYFLUX_ADMIN_URL")
    where.add_argument("--user", metavar="NAME", help="who asks; else QUERYFLUX_ADMIN_USER")
    where.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="YAML with url, username, password, caFile (default: ~/.config/queryflux/admin.yaml); "
        "QUERYFLUX_ADMIN_PASSWORD wins over its password",
    )


QUERY_FILTERS = {
    "status": "how they ended: Success, Failed, Cancelled, Denied",
    "group": "name of their group",
    "engine": "their engine, such as Trino",
    "search": "a piece of their SQL",
    "worker": "name of the worker that ran them",
}


MIGRATE_MODES = {
    "dry-run": "say what would be applied",
    "status": "list migrations; exit status 1 when some are pending",
    "new-epoch": "after a restore: tell workers that what the database counted before says nothing any more",
}


def _folder_options(command: argparse._ActionsContainer) -> None:
    command.add_argument("--host", help=f"address to listen on (default: {USUAL_HOST})")
    for name, (flag, usual) in PORT_FLAGS.items():
        text = f"port of {name} (default: {usual}, or a free one when it is taken); 0: any free one"
        command.add_argument(f"--{flag}-port", type=_port, metavar="PORT", dest=name, help=text)


def _port(text: str) -> int:
    return _between(text, 0, MOST_PORT, "a port is a number from 0 (any free one) to 65535")


def _workers(text: str) -> int:
    return _between(text, 1, MOST_WORKERS, f"it is a number of processes, from 1 to {MOST_WORKERS}")


def _between(text: str, least: int, most: int, wrong: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: {wrong}")


class _NoPassword(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        if values:
            parser.error(f"a password is no argument. {WHERE_PASSWORDS_COME_FROM}")


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


def _host(options: argparse.Namespace) -> str:
    return USUAL_HOST if options.host is None else str(options.host)


def _beside_a_file(options: argparse.Namespace) -> str:
    """What the file has to say instead of an option that was given; empty when none was."""
    for name, (flag, _) in PORT_FLAGS.items():
        if getattr(options, name) is not None:
            block = name if name == "adminApi" else f"frontends.{name}"
            return f"--{flag}-port is for --data: with -c set queryflux.{block}.port in the file"
    if options.host is not None:
        return "--host is for --data: with -c set host in queryflux.frontends.trinoHttp and the other blocks"
    return ""


def _serve(options: argparse.Namespace) -> int:
    from queryflux.app.serve import serve_file, serve_folder

    if options.config is not None:
        if wrong := _beside_a_file(options):
            print(f"queryflux: {wrong}", file=sys.stderr)
            return USAGE_ERROR
        return serve_file(options.config, os.environ, options.workers)
    return serve_folder(options.data, _host(options), _ports(options), options.workers)


def _worker_seat(options: argparse.Namespace) -> int:
    from queryflux.app.child import serve_seat

    return serve_seat(options.descriptor)


def _demo(options: argparse.Namespace) -> int:
    from queryflux.app.demo import run_demo

    return run_demo(options.dir, _host(options), _ports(options), check=options.check)


def _validate(options: argparse.Namespace) -> int:
    from queryflux.app.validate import validate_file

    report, good = validate_file(options.config, os.environ, as_json=options.json)
    print(report)
    return 0 if good else 1


def _migrate(options: argparse.Namespace) -> int:
    from queryflux.app.migrate import migrate_file

    return 0 if migrate_file(options.config, os.environ, options.mode) else 1


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


def _remote(options: argparse.Namespace) -> "Remote":
    from queryflux.app.remote import open_remote

    return open_remote(os.environ, options.url, options.user, options.credentials)


def _config(options: argparse.Namespace) -> int:
    from queryflux.app.admin_commands import config_get, config_put

    if options.action == "get":
        print(config_get(_remote(options), options.part, as_json=options.json))
        return 0
    dry_run = options.action == "diff" or options.dry_run
    print(
        config_put(
            _remote(options), options.file, os.environ, at=options.at, dry_run=dry_run, as_json=options.json
        )
    )
    return 0


def _queries(options: argparse.Namespace) -> int:
    from queryflux.app.admin_commands import queries, running

    wanted = {name: value for name in QUERY_FILTERS if (value := getattr(options, name)) is not None}
    if options.running:
        if wanted:
            print("queryflux: --running takes no filters", file=sys.stderr)
            return USAGE_ERROR
        print(running(_remote(options), as_json=options.json))
        return 0
    if "group" in wanted:
        wanted["cluster_group"] = wanted.pop("group")
    print(queries(_remote(options), {**wanted, "limit": str(options.limit)}, as_json=options.json))
    return 0


def _status(options: argparse.Namespace) -> int:
    from queryflux.app.fleet_status import status

    print(status(_remote(options), as_json=options.json))
    return 0


def _cancel(options: argparse.Namespace) -> int:
    from queryflux.app.admin_commands import cancel

    print(cancel(_remote(options), options.id))
    return 0


def _typed_password() -> str | None:
    """A password typed twice; None when the two differ. Raises EOFError."""
    password = getpass.getpass("Password: ")
    return password if not password or getpass.getpass("Again: ") == password else None


COMMANDS = {
    "serve": _serve,
    SEAT: _worker_seat,
    "demo": _demo,
    "validate": _validate,
    "migrate": _migrate,
    "config-schema": _schema,
    "hash-password": _hash_password,
    "config": _config,
    "queries": _queries,
    "cancel": _cancel,
    "status": _status,
}


if __name__ == "__main__":
    sys.exit(main())
