# One verb per target. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test check bench chaos sim lock schema format clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "QueryFlux needs Python 3.11 or newer")'
	@echo "Setting up $(VENV): a Python environment with the pinned packages of requirements.lock. This"
	@echo "happens once, downloads them, prints nothing and takes about two minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup
	$(BIN)/queryflux demo $(if $(CHECK),--check)

test: setup
	$(BIN)/python -m pytest $(if $(FULL),--full) $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/rooms/test_imports.py tests/rooms/test_docs.py

bench: setup
	$(BIN)/python -m bench $(ONLY)

chaos: setup
	$(BIN)/python -m tests.chaos $(ONLY) --seconds $(or $(SECONDS_),60) --seed $(or $(SEED),1)

sim: setup
	$(BIN)/python -m tests.sim $(ONLY) --seeds $(or $(SEEDS),200) --first $(or $(FIRST),1)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schema: setup
	$(BIN)/python -m tests.kit.databases > docs/schema.sql

lock: setup
	scripts/lock.sh

clean:
	rm -rf $(VENV) .demo .cache .mypy_cache .ruff_cache .pytest_cache
