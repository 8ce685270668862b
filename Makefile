# Everything a fresh machine needs is Python 3.11 or newer (with venv) and make.
#   make demo          a short story in the terminal, and a report in apas-demo
#   make test          the test suite (TORCH=1 adds PyTorch, BROWSER=1 the tests in a browser)
#   make check         lint, types, docs and tests: what CI runs
#   make validity      the long statistical suites
#   make fuzz          2,000 damaged files for every reader, in some minutes
#   make bench         speed against written-down baselines
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# CI names a file of pins here; nobody else needs one.
CONSTRAINTS ?=
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
MORE = $(if $(filter 1,$(TORCH)),$(comma)torch)$(if $(filter 1,$(BROWSER)),$(comma)browser)
comma := ,
KIND = $(if $(filter 1,$(TORCH)),-torch)$(if $(filter 1,$(BROWSER)),-browser)

.PHONY: help demo test check lint types docs validity fuzz bench clean
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
$(VENV)/.test$(KIND): $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot$(MORE)]'
	@touch $@
$(VENV)/.dev$(KIND): $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot,dask,notebooks,docs,dev$(MORE)]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/apas demo
test: $(VENV)/.test$(KIND)
	$(BIN)/python -m pytest -m "not validity and not fuzz" -n $(WORKERS)
lint: $(VENV)/.dev$(KIND)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
types: $(VENV)/.dev$(KIND)
	$(BIN)/mypy
docs: $(VENV)/.dev$(KIND)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site
check: lint types docs test
validity: $(VENV)/.test$(KIND)
	$(BIN)/python -m pytest -m validity -n $(WORKERS)
fuzz: $(VENV)/.test$(KIND)
	timeout 900 $(BIN)/python -m pytest -m fuzz -n $(WORKERS) --dist worksteal
bench: $(VENV)/.test$(KIND)
	$(BIN)/python -m benchmarks
clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache apas-demo test-output
