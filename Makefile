# Everything a fresh machine needs is Python 3.11 or newer (with venv) and make.
#   make demo          a short story in the terminal
#   make test          the test suite (TORCH=1 adds PyTorch)
#   make check         lint, types, docs and tests: what CI runs
#   make validity      the long statistical suites
#   make bench         speed against written-down baselines
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# CI names a file of pins here; nobody else needs one.
CONSTRAINTS ?=
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
TORCH_EXTRA = $(if $(filter 1,$(TORCH)),$(comma)torch)
comma := ,

.PHONY: help demo test check lint types docs validity bench clean
help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "apas needs Python 3.11 or newer, but '$(PYTHON)' is not; name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed; install the venv module (on Debian: apt-get install python3-venv) or name another Python: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; rm -rf $(VENV); exit 1; }

# One stamp per set of extras, renewed when the project's needs change.
$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[report,plot]'
	@touch $@
$(VENV)/.test: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot]'
	@touch $@
$(VENV)/.test1: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot$(TORCH_EXTRA)]'
	@touch $@
$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot,docs,dev$(TORCH_EXTRA)]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/apas demo
test: $(VENV)/.test$(filter 1,$(TORCH))
	$(BIN)/python -m pytest -m "not validity" -n $(WORKERS)
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
types: $(VENV)/.dev
	$(BIN)/mypy
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site
check: lint types docs test
validity: $(VENV)/.test$(filter 1,$(TORCH))
	$(BIN)/python -m pytest -m validity -n $(WORKERS)
bench: $(VENV)/.test
	$(BIN)/python -m benchmarks
clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache apas-demo
