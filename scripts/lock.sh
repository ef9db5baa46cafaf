#!/usr/bin/env bash
# Resolve requirements.in into requirements.lock: versions pinned, every file hashed, no addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet pip-tools
.venv/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-index-url \
  --no-emit-find-links --no-emit-options --output-file requirements.lock requirements.in
.venv/bin/python - <<'PY'
import pathlib
import re

lock = pathlib.Path("requirements.lock")
text = re.sub(r"^# WARNING:.*\n(?:#.*\n)*", "", lock.read_text(), flags=re.M)
text = re.sub(r"^queryflux @ .*\n(?:    #.*\n)*", "", text, flags=re.M)
lock.write_text(re.sub(r"^(# The following packages are considered.*)\n", "", text, flags=re.M))
PY
