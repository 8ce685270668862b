# Everything a fresh machine needs is Python 3.11 or newer (with venv) and make.
#   make demo          a short story in the terminal, and a report in apas-demo
#   make test          the test suite (TORCH=1 adds PyTorch, BROWSER=1 the tests in a browser, LIBRARIES=1 boosted trees,
#                      skorch, Keras and MLflow)
#   make check         lint, types, docs and tests: what a change must pass
#   make lowest        the fast tests with the oldest versions that are allowed (Python 3.11 or 3.12)
#   make dist          wheel and sdist in dist/; the wheel is tried in an empty environment
#   make validity      the long statistical suites
#   make fuzz          2,000 damaged files for every reader, in some minutes
#   make bench         speed against written-down baselines
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
WORKERS ?= 2
# CI names a file of pins here; nobody else needs one.
CONSTRAINTS ?=
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
MORE = $(if $(filter 1,$(TORCH)),$(comma)torch)$(if $(filter 1,$(BROWSER)),$(comma)browser)$(if $(filter 1,$(LIBRARIES)),$(comma)libraries)
comma := ,
KIND = $(if $(filter 1,$(TORCH)),-torch)$(if $(filter 1,$(BROWSER)),-browser)$(if $(filter 1,$(LIBRARIES)),-libraries)
# compiled tests are kept: to collect them anew takes two times as long
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint types docs lowest dist validity fuzz bench clean
help:
	@sed -n 's/^#   //p' Makefile

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "apas needs Python 3.11 or newer, but '$(PYTHON)' is not; name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $* || { \
	  echo "'$(PYTHON) -m venv' failed; install the venv module (on Debian: apt-get install python3-venv) or name another Python: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; rm -rf $*; exit 1; }

# One stamp per set of extras, renewed when the project's needs change.
$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[report,plot]'
	@touch $@
$(VENV)/.test$(KIND): $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot$(MORE)]'
	@touch $@
$(VENV)/.dev$(KIND): $(BIN)/python pyproject.toml
	$(PIP_INSTALL) -e '.[test,report,plot,dask,parquet,postgres,notebooks,docs,dev$(MORE)]'
	@touch $@
# The oldest versions have no wheels for a newer Python, and to compile them would test something else.
OLDEST = import tomllib; \
  project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  extras = [need for extra in ("test", "report", "plot") for need in project["optional-dependencies"][extra]]; \
  print(*(need.replace(">=", "==") for need in project["dependencies"] + extras), sep="\n")
$(LOWEST)/.installed: $(LOWEST)/bin/python pyproject.toml
	@$(LOWEST)/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 13))' || { \
	  echo "the oldest allowed versions need Python 3.11 or 3.12; name one: make PYTHON=python3.11 lowest" >&2; rm -rf $(LOWEST); exit 1; }
	@$(LOWEST)/bin/python -c '$(OLDEST)' > $(LOWEST)/oldest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c $(LOWEST)/oldest.txt -e '.[test,report,plot]'
	@touch $@
# Every library of the core, of the tests, of reports and of plots is used in these.
FAST = tests/paper/test_download.py tests/paper/test_loans.py tests/paper/test_data_folder.py tests/display tests/stats/test_tolerance.py tests/stats/test_arguments.py tests/shifts/test_lp.py \
  tests/shifts/test_retrain.py tests/worst_case/test_milp.py tests/certification/test_certificate.py tests/cli/test_certify.py \
  tests/cli/test_manners.py tests/contracts/test_audit_models.py tests/contracts/test_schema.py \
  tests/counterfactuals/space/test_space.py tests/models/test_digest.py tests/models/files/test_json.py tests/models/files/test_onnx.py \
  tests/models/files/test_skops.py tests/models/test_sklearn.py tests/report/test_write_report.py tests/test_deployment_gate.py

demo: $(VENV)/.demo
	$(BIN)/apas demo
# halves of the list go to the workers, so that few files, and what their tests share, are cut in two
test: $(VENV)/.test$(KIND)
	$(BIN)/python -m pytest -m "not validity and not fuzz" -n $(WORKERS) --dist worksteal
lint: $(VENV)/.dev$(KIND)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
types: $(VENV)/.dev$(KIND)
	$(BIN)/mypy
docs: $(VENV)/.dev$(KIND)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site
check: lint types docs test
lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest $(FAST) -m "not validity and not fuzz" -n $(WORKERS)
dist: $(VENV)/.dev$(KIND)
	rm -rf dist $(VENV)/trial
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv $(VENV)/trial
	$(VENV)/trial/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@# in a folder from which the checkout is not seen
	trial="$$PWD/$(VENV)/trial/bin" && folder=$$(mktemp -d) && cd "$$folder" && "$$trial/apas" --version && "$$trial/apas" demo && rm -r "$$folder"
validity: $(VENV)/.test$(KIND)
	$(BIN)/python -m pytest -m validity -n $(WORKERS)
fuzz: $(VENV)/.test$(KIND)
	timeout 900 $(BIN)/python -m pytest -m fuzz -n $(WORKERS) --dist worksteal
bench: $(VENV)/.test$(KIND)
	$(BIN)/python -m benchmarks
clean:
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache apas-demo test-output
