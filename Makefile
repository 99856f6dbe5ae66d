# Everything runs in the checkout's own .venv; `make help` lists what there is.

# The first Python on the machine that is new enough; `make PYTHON=...` names another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
# A named Python gets an environment of its own for the smoke tests, so that .venv stays as it is.
SMOKE_VENV ?= $(if $(filter file,$(origin PYTHON)),.venv,.venv-$(shell \
	$(PYTHON) -c 'import sys; print("{}.{}".format(*sys.version_info))'))
SMOKE_TESTS ?= tests/smoke
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than the cores of a small machine: tests often wait for a server or for Spark.
WORKERS ?= 3
PYTEST_ARGS ?=
# What `make coverage` runs: all tests but the long ones. With fewer tests, COVERAGE_ARGS=--fail-under=0 keeps it green.
COVERAGE_TESTS ?= tests
COVERAGE_ARGS ?=
# The programs among the files in benchmarks/; the others are parts of them.
BENCHMARKS ?= benchmarks/metadata.py benchmarks/data.py benchmarks/backfill.py \
	benchmarks/views.py benchmarks/source.py benchmarks/lookup.py
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup lock clean demo docs test smoke coverage lint format chaos bench

##@ Start

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo

setup: $(STAMP) ## Install everything into .venv, and look for what tests use beside it
	@$(BIN)/python -m scripts.components postgres java node chromium

demo: $(STAMP) ## Start a server with sample tables and walk through it
	@$(BIN)/pennon demo

##@ Check

test: setup lint ## Lint, then run all tests but the long ones (WORKERS=3, PYTEST_ARGS=...)
	$(BIN)/pytest tests -n $(WORKERS) -m "not long" $(PYTEST_ARGS)

smoke: ## Run a few tests of everything, also on another Python (PYTHON=python3.13, SMOKE_TESTS=...)
	@$(MAKE) --no-print-directory $(SMOKE_VENV)/.installed VENV=$(SMOKE_VENV)
	$(SMOKE_VENV)/bin/pytest $(SMOKE_TESTS) $(PYTEST_ARGS)

lint: $(STAMP) ## Check style, formatting, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/mypy --config-file tests/mypy.ini $(wildcard tests benchmarks scripts)
	$(BIN)/lint-imports --no-cache
	$(BIN)/oxlint src/pennon/console

format: $(STAMP) ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

##@ Measure

coverage: setup ## Run the tests with coverage, and fail below 90 % (COVERAGE_TESTS=tests/unit, COVERAGE_ARGS=...)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(COVERAGE_TESTS) -n $(WORKERS) -m "not long" $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --fail-under=0
	$(BIN)/coverage xml --quiet --fail-under=0
	$(BIN)/coverage report $(COVERAGE_ARGS)

chaos: setup ## Run the long tests, everything in tests/chaos, and the data plane on S3 (PYTEST_ARGS=...)
	$(BIN)/pytest tests -m "long or chaos" $(PYTEST_ARGS)
	$(BIN)/pytest tests/clients/remote tests/clients/node tests/integration/data --on-s3 -m "not long" $(PYTEST_ARGS)

bench: setup ## Run the benchmarks (BENCHMARKS=..., BENCH_ARGS=...)
	@$(BIN)/python -m scripts.components wrk
	@set -e; for benchmark in $(BENCHMARKS); do \
		echo "== $$benchmark"; $(BIN)/python $$benchmark $(BENCH_ARGS); done

##@ Maintain

docs: $(STAMP) ## Build the documentation as a site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in site/; open site/index.html."

lock: ## Resolve all dependencies anew into requirements/dev.txt
	@$(PYTHON) -m scripts.lock

clean: ## Remove .venv and all caches
	rm -rf $(VENV) .venv-* htmlcov coverage.xml .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): pyproject.toml requirements/dev.txt scripts/install.py
	@test -n "$(PYTHON)" || { echo "Pennon needs Python 3.11 or newer; make PYTHON=... names one." >&2; exit 1; }
	@$(PYTHON) -m scripts.install $(VENV)
	@touch $@
