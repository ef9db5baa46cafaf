"""The Trino CLI and JDBC driver, where Maven's local repository and a Java are found."""

import subprocess
from pathlib import Path

import pytest

from tests.kit.trino import find_java

_REPOSITORY = Path.home() / ".m2" / "repository" / "io" / "trino"


def java() -> str:
    """A Java that is new enough; skips the test when there is none."""
    home = find_java()
    if home is None:
        pytest.skip("no Java found that is new enough")
    return str(home / "bin" / "java")


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
