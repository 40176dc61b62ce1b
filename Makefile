# Everything a checkout needs, with nothing but Python 3.11 or newer, make and pip.
#
# The venv is made without pip and filled from outside (pip --python): a plain Debian has no python3-venv, and its pip
# refuses to install into the system. All pins, with hashes, stand in requirements/.

SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check
PYTEST_ARGS ?=
# Tests on a test bed wait for pods most of the time: they run beside those of this machine (tests/plugins/lanes.py).
LANES ?= 2
# How often a test that failed is run again (tests/plugins/again.py).
AGAIN ?= 0
# The pure parts, the pages, the contract, and the command line's words, codes and tables.
QUICK := tests/test_*.py tests/backends/test_contract.py tests/cli/test_o*.py tests/cli/test_exit_codes.py
DEV_STAMP := .venv/.dev-installed
DEMO_STAMP := .venv/.demo-installed

# Some machines export these; they would hide slow starts and missing flushes.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help venv demo test quick lint frameworks testbed reference bench bench-cluster pins wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

venv: $(DEV_STAMP) ## .venv with the product (editable) and all tools
	@$(BIN)/python -m compileall -qq src || true

demo: $(DEMO_STAMP) ## train on two workers here, then show logs, model, list, get and history
	@$(BIN)/python -m compileall -qq src || true
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash tools/demo.sh

test: venv lint ## lint, types, arrows, lengths and every test that needs no root and no gigabyte
	$(BIN)/pytest -n $(LANES) --dist loadgroup --reruns $(AGAIN) $(PYTEST_ARGS)

quick: venv lint ## lint, types and the quick tests of all parts, a worker per core, under a minute
	$(BIN)/pytest -q -n auto -m "not slow and not kill and not frameworks and not cluster and not kubelet" $(QUICK) $(PYTEST_ARGS)

lint: venv ## ruff, mypy --strict, import arrows, function lengths
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/function_lengths.py
	$(BIN)/python tools/function_lengths.py testbed

frameworks: ## PyTorch on CPU, JAX and MPI in .frameworks, for the tests marked so (1.9 GB)
	PYTHON="$(PYTHON)" bash tools/frameworks.sh

testbed: ## a real Kubernetes for the tests marked cluster and kubelet (root on Linux, Go 1.26; docs/testbed.md)
	$(PYTHON) -m testbed build

reference: venv ## write docs/reference anew, from the code
	$(BIN)/python tools/reference.py

bench: venv ## the figures, as a table with ratios
	$(BIN)/python -m benchmarks

bench-cluster: venv ## what a cluster's commands cost beside kubectl, on a test bed with 2,000 jobs (make testbed)
	$(BIN)/python -m benchmarks.cluster

pins: ## write requirements/*.txt anew (needs uv)
	bash tools/pins.sh

wheel: venv ## dist/*.whl
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove what make made
	rm -rf .venv .frameworks build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m pip --version >/dev/null || { echo "pip is needed (Debian: apt-get install python3-pip)" >&2; exit 1; }
	$(PYTHON) -m venv --without-pip .venv

$(DEV_STAMP): requirements/dev.txt pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $(DEV_STAMP) $(DEMO_STAMP)

$(DEMO_STAMP): requirements/demo.txt pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/demo.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $(DEMO_STAMP)
