"""The Trino CLI and JDBC driver, where Maven's local repository and a Java are found."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_REPOSITORY = Path.home() / ".m2" / "repository" / "io" / "trino"
_JAVA_HOMES = Path("/usr/lib/jvm")


def java() -> str:
    """The newest Java; skips the test when there is none."""
    homes = [Path(home) for home in (os.environ.get("JAVA_HOME"),) if home]
    homes += sorted(_JAVA_HOMES.glob("*"), key=_version, reverse=True)
    found = [home / "bin" / "java" for home in homes if (home / "bin" / "java").is_file()]
    program = str(found[0]) if found else shutil.which("java")
    if program is None:
        pytest.skip("no Java found (JAVA_HOME, PATH)")
    return program


def _version(home: Path) -> int:
    digits = "".join(character if character.isdigit() else " " for character in home.name).split()
    return max((int(number) for number in digits if len(number) < 3), default=0)


def jar(artifact: str, suffix: str = "") -> Path:
    """The newest jar of an artifact of io.trino; skips the test when there is none."""
    jars = sorted((_REPOSITORY / artifact).glob(f"*/{artifact}-*{suffix}.jar"))
    if not jars:
        pytest.skip(f"{artifact} is not in the local Maven repository")
    return jars[-1]


def cli(
    port: int, *statements: str, scheme: str = "http", **options: str
) -> "subprocess.CompletedProcess[str]":
    """Run statements with the Trino CLI; ``options`` with underscores for hyphens."""
    command = [java(), "-jar", str(jar("trino-cli", "-executable"))]
    command += ["--server", f"{scheme}://127.0.0.1:{port}", "--execute", "; ".join(statements)]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", value]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def jdbc(source: Path, port: int, *properties: str) -> list[str]:
    """Run a program that uses the JDBC driver; what it printed, line by line."""
    command = [java(), "-cp", str(jar("trino-jdbc")), str(source), str(port), *properties]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
