# Two commands on a fresh machine: `make demo` and `make test`.  Python >= 3.11 and make are all they need.
#
# Everything is installed into .venv from a lock file; a stamp in .venv remembers it, so that a second run starts at once.

VENV := .venv
PY := $(VENV)/bin/python
LOWEST := $(VENV)-lowest
# A Python to build .venv with; empty means: the first candidate that is new enough and can make environments.
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
PYTEST_ARGS ?=
# Processes that share the tests.
TEST_PROCESSES ?= 2
# Tests that together call every dependency, each where it is met most: NumPy, SciPy and scikit-learn in the laws, the
# conformance suite and scikit-learn's checks; Dask in the engine; Zarr, numcodecs, fsspec and s3fs in the stores; pandas,
# pyarrow, polars, anndata, h5py and xarray in the kinds of data; Matplotlib, rich and shtab; pyamg and pynndescent in the
# embeddings.  The rest meets them by way of these.  LOWEST_TESTS=tests runs all.
LOWEST_TESTS ?= $(addprefix tests/,formats local_linear plot test_blas.py test_containers.py test_lowest_versions.py) \
  $(wildcard tests/estimators/test_*conformance.py) \
  $(patsubst %,tests/cli/test_cli_%.py,commands progress) $(patsubst %,tests/engine/test_engine_%.py,cluster local machine) \
  $(patsubst %,tests/estimators/test_estimators_%.py,annotated features grid kinds sklearn) \
  $(patsubst %,tests/laws/test_laws_%.py,engines invariance) $(patsubst %,tests/operators/test_operators_%.py,kernels tall) \
  $(patsubst %,tests/stores/test_graph_%.py,ingest lists) $(patsubst %,tests/stores/test_ingest_%.py,annotated arrays tables) \
  $(patsubst %,tests/stores/test_stores_%.py,codecs open results retries sink sparse)
NOTEBOOKS ?= examples
FUZZ_ARGS ?=
DEMO_FOLDER ?= demo-output
LOCK_FLAGS ?=
OFFLINE ?=

MADE := $(VENV)/.made
DEMO_READY := $(VENV)/.ready-demo
DEV_READY := $(VENV)/.ready-dev
LOWEST_MADE := $(LOWEST)/.made
LOWEST_READY := $(LOWEST)/.ready
test-lowest $(LOWEST_READY) $(LOWEST_MADE): PY := $(LOWEST)/bin/python
# The lowest versions have no wheels for a newer Python.
$(LOWEST_MADE): CANDIDATES := $(or $(PYTHON),python3.11 python3.12)
# uv, which pip brings, installs in ten seconds what takes pip two minutes.
PIP_INSTALL = $(PY) -m pip install -qq --no-input --disable-pip-version-check -c requirements/dev.txt
INSTALL = $(PY) -m uv pip install -q --python $(PY)
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
WORKING := import uv, sys; sys.exit(sys.version_info < (3, 11) or sys.prefix == sys.base_prefix)

.PHONY: help demo test test-slow test-all test-lowest notebooks notebooks-renew fuzz faults planted mutants check lint types contracts docs package lock audit clean

help:
	@echo "make demo    install the library into $(VENV) and run its demonstration"
	@echo "make test    install the tools of development into $(VENV) and run the tests, but for the slow ones"
	@echo "make test-all   all tests, and laws on all their examples (make test: on a quarter of them)"
	@echo "make test-lowest   install the lowest versions that pyproject.toml allows into $(LOWEST) and run the tests there"
	@echo "make notebooks   run the notebooks of examples/, each from a clean kernel (NOTEBOOKS=examples/text.ipynb for one)"
	@echo "make notebooks-renew   the same, and keep what they print and draw"
	@echo "make fuzz    read 20000 damaged inputs (FUZZ_ARGS='--count 500 --only csv'); about half an hour"
	@echo "make check   lint, types, import contracts, documentation and package, as the continuous integration runs them"
	@echo "make package   what a release uploads, in dist/, and whether PyPI would take it"
	@echo "make lock    write requirements/*.txt again from pyproject.toml (LOCK_FLAGS=--upgrade for newer versions)"
	@echo "make audit   compare the lower bounds and locked versions with requirements/advisories.toml, then those locked with"
	@echo "             the advisories of PyPI, which fails where it cannot be asked; OFFLINE=1 leaves that out"
	@echo "make clean   remove $(VENV), $(LOWEST) and everything that the commands above have made"

demo: $(DEMO_READY)
	@echo "==> Demo: invents papers, stores them in Zarr, and fits three models to them on two processes."
	$(PY) -m examples.demo $(DEMO_FOLDER)

# Each process of the tests keeps to one thread of BLAS: together they are as many as the cores.  Bytecode is written
# whatever the environment says, or each of the hundreds of processes that tests start would compile the library again.
PYTEST = PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n $(TEST_PROCESSES) --dist worksteal
FAULTS := tests/stores/test_stores_calls.py tests/stores/test_stores_machine.py tests/estimators/test_estimators_machine.py
QUICKLY := -m "not slow" --hypothesis-profile=quick

test: $(DEV_READY)
	@echo "==> Tests"
	$(PYTEST) $(QUICKLY) $(PYTEST_ARGS)

test-slow: $(DEV_READY)
	@echo "==> Slow tests"
	$(PYTEST) -m slow $(PYTEST_ARGS)

# In one run, as to find all tests takes half a minute.
test-all: $(DEV_READY)
	@echo "==> All tests"
	$(PYTEST) $(PYTEST_ARGS)

test-lowest: $(LOWEST_READY)
	@echo "==> Tests with the lowest versions"
	$(PYTEST) $(QUICKLY) $(LOWEST_TESTS) $(PYTEST_ARGS)

# A person who runs the notebook of large data gets 8 GB.
notebooks: export DLATENT_EXAMPLE_GB ?= 0.2
notebooks: $(DEV_READY)
	@echo "==> Notebooks"
	$(PYTEST) --nbmake $(NOTEBOOKS) $(PYTEST_ARGS)

# nbstripout takes the times of the cells out, so that only what a reader sees makes a difference.
notebooks-renew: override PYTEST_ARGS += --overwrite
notebooks-renew: notebooks
	$(VENV)/bin/uv tool run nbstripout --keep-output --keep-count $(filter %.ipynb,$(wildcard $(NOTEBOOKS) $(NOTEBOOKS)/*.ipynb))

fuzz: $(DEV_READY)
	@echo "==> Damaged inputs to every reader"
	$(PY) -W ignore -m tests.fuzz $(FUZZ_ARGS)

faults: $(DEV_READY)
	@echo "==> Fits on a simulated cluster, calls of the file system that fail, and commands in any order"
	OPENBLAS_NUM_THREADS=1 $(PY) -m tests.engine.simulated
	$(PYTEST) --hypothesis-profile=nightly $(FAULTS) $(PYTEST_ARGS)

planted: $(DEV_READY)
	@echo "==> Bugs that the tests must find"
	$(PY) -m tests.planted

# MUTANTS='dlatent.gaussian.views*' for one module, '*7' for a tenth of all.
mutants: $(DEV_READY)
	@echo "==> Mutants that the tests must kill"
	OPENBLAS_NUM_THREADS=1 $(VENV)/bin/mutmut run --max-children $(TEST_PROCESSES) $(foreach name,$(MUTANTS),'$(name)')
	$(VENV)/bin/mutmut results

check: $(DEV_READY)
	@$(MAKE) --no-print-directory --keep-going --jobs=2 lint types contracts docs package

lint: $(DEV_READY)
	@echo "==> Lint"
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	@# git grep ends with 1 where no line is found, with 0 where one is, and with more where it cannot look.
	@git grep -nIE '^(<{7}|[|]{7}|>{7})( |$$)'; [ $$? -eq 1 ] || { echo "Resolve the merge conflicts above." >&2; exit 1; }

types: $(DEV_READY)
	@echo "==> Types"
	$(VENV)/bin/mypy --strict

contracts: $(DEV_READY)
	@echo "==> Import contracts"
	$(VENV)/bin/lint-imports

docs: $(DEV_READY)
	@echo "==> Documentation"
	$(VENV)/bin/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# The source distribution, and the wheel that is built from it.
package: $(DEV_READY)
	@echo "==> Package"
	rm -rf dist
	$(PY) -m build --no-isolation . >/dev/null
	$(PY) -m twine check --strict dist/*

COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/bin/uv pip compile -q --universal --python-version 3.11 \
  --fork-strategy fewest --no-emit-index-url --no-emit-find-links $(LOCK_FLAGS) pyproject.toml

# The demo is locked within the versions of development, so that an environment that has the second has the first.
lock: $(DEV_READY)
	@echo "==> Writing requirements/dev.txt, requirements/demo.txt and requirements/lowest.txt"
	$(COMPILE) --all-extras --group dev -o requirements/dev.txt
	$(COMPILE) --extra plot --group build -c requirements/dev.txt -o requirements/demo.txt
	$(COMPILE) --resolution lowest-direct --all-extras --group build --group test -o requirements/lowest.txt
	@! grep -nE '://|^(-|/)|file:' requirements/dev.txt requirements/demo.txt requirements/lowest.txt \
	  || { echo "The lines above name a host or a path; a lock file must hold names and versions only." >&2; exit 1; }

# --strict: an index that knows no advisories would else pass as one that knows of none.
ACCEPTED = $(shell sed -n '/^\[\[accepted/,$$ s/^advisory = "\(.*\)"/--ignore-vuln \1/p' requirements/advisories.toml)
PIP_AUDIT = $(VENV)/bin/uv tool run pip-audit --strict --disable-pip --no-deps --progress-spinner off $(ACCEPTED)

audit: $(DEV_READY)
	@echo "==> Known advisories: requirements/advisories.toml"
	$(PY) -m pytest -q tests/test_advisories.py
ifeq ($(OFFLINE),)
	@echo "==> Known advisories: PyPI"
	@for lock in dev demo lowest; do \
	  $(PIP_AUDIT) -r requirements/$$lock.txt || { \
	    echo "requirements/$$lock.txt: an advisory, or no answer from PyPI (see above); make audit OFFLINE=1 leaves PyPI out" >&2; \
	    exit 1; }; \
	done
endif

clean:
	rm -rf $(VENV) $(LOWEST) dist docs/_build docs/reference docs/tutorials demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants

$(DEMO_READY): $(MADE) requirements/demo.txt pyproject.toml
	@echo "==> Installing dlatent and requirements/demo.txt into $(VENV) (once)"
	$(INSTALL) -r requirements/demo.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_READY): $(MADE) requirements/dev.txt pyproject.toml
	@echo "==> Installing dlatent and requirements/dev.txt into $(VENV) (once)"
	$(INSTALL) -r requirements/dev.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $(DEMO_READY) $@

$(LOWEST_READY): $(LOWEST_MADE) requirements/lowest.txt pyproject.toml
	@echo "==> Installing dlatent and requirements/lowest.txt into $(LOWEST) (once)"
	$(INSTALL) -r requirements/lowest.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# An environment that works is kept; half an environment (an interrupted run) is made again.
$(MADE) $(LOWEST_MADE):
	@if $(PY) -c '$(WORKING)' >/dev/null 2>&1; then touch $@; exit 0; fi; \
	for name in $(CANDIDATES); do \
	  if $$name -c '$(SUITABLE)' >/dev/null 2>&1; then \
	    echo "==> Making $(@D) with $$name ($$($$name --version))"; \
	    $$name -m venv --clear $(@D) && $(PIP_INSTALL) uv && touch $@; \
	    exit; \
	  fi; \
	done; \
	echo "No usable Python among: $(CANDIDATES)." >&2; \
	echo "dlatent needs Python 3.11 or newer with the modules venv and ensurepip (Debian and Ubuntu keep them in the" >&2; \
	echo "package python3-venv).  Name another interpreter with: make PYTHON=/path/to/python3 ..." >&2; \
	exit 1
