"""A signal that comes while a process is still starting ends it in order: nothing of it is left."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.kit.process import process

YAML = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
clusters:
  duck: {engine: duckDb}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""


def test_a_parent_takes_its_workers_and_its_directory_with_it(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qf-") as short,
        process(tmp_path, YAML, {"TMPDIR": short}, "--workers", "2") as parent,
    ):
        parent.until(lambda: "is process" in "".join(parent.lines))
        parent.signal()
        assert parent.wait() == 0, "".join(parent.lines)
        said = "".join(parent.lines)
        assert "ended by a signal while it was starting" in said
        assert "Traceback" not in said
        assert "the parent process has gone" not in said
        assert os.listdir(short) == []
        for pid in re.findall(r"is process (\d+)", said):
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)
