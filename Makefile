# Everything a developer runs. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
SEEDS ?= 2000
WORKERS ?= 2
BENCH ?= own_loop link shaped_link codecs large_model scale crowd several_hosts \
	slowness real_goodput thirty_days hostile damage alerts keeping

# Without bytecode each of the many processes of a run, and of a test, compiles all sources anew.
export PYTHONDONTWRITEBYTECODE :=
# Sources and pages are read as UTF-8 by tests, whatever the locale of the machine.
export PYTHONUTF8 := 1

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test test-all lint types imports unit long docs optional wheel heart demo bench simulate clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment and install the exact versions (instant when repeated)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,grain,jax,plots,tasks,tensorboard,text]'
	$(BIN)/python -m compileall -q islands messaging
	@touch $@

test: lint types imports unit ## Run what should pass before a change is proposed

test-all: long heart ## Run what make test leaves out: long tests, all seeds, and the heart

lint: $(STAMP) ## Check rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

imports: $(STAMP) ## Check that imports point one way
	$(BIN)/lint-imports --no-logo

unit: $(STAMP) ## Run the quick tests only
	$(BIN)/pytest -m "not long" --numprocesses $(WORKERS) --dist worksteal --quiet

long: $(STAMP)
	$(BIN)/pytest -m long --numprocesses $(WORKERS) --dist worksteal --quiet

docs: $(VENV)/.docs ## Build the site of docs/ in build/docs, with warnings as errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --conf-dir docs . build/docs
	@echo "build/docs/index.html is the first page"

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[docs]'
	@touch $@

optional: ## Run the tests of what few users install: PyTorch, saved datasets, sinks, S3, a browser (7 GB)
	test -x $(VENV)/optional/bin/python || $(PYTHON) -m venv $(VENV)/optional
	$(VENV)/optional/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt \
		--editable '.[browser,dev,hugging-face,jax,mlflow,moto,s3,tasks,tensorboard,text,torch,wandb]'
	$(VENV)/optional/bin/pytest -m "not long" --numprocesses $(WORKERS) --dist worksteal --quiet \
		tests/keeping tests/loops tests/page tests/sinks tests/tasks

wheel: ## Build the wheel, and train the demonstration from it in an environment of its own
	rm -rf build/wheel && mkdir -p build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--wheel-dir build/wheel .
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt "$$(echo build/wheel/*.whl)[jax]"
	cd build/wheel && venv/bin/islands demo --tokens 400000

heart: $(STAMP) ## Watch ordinary runs: is everybody merged, does the default train as well as it did?
	$(BIN)/python -m tests.heart

demo: $(STAMP) ## Train a small model on this machine: three learners, one of them drops out and returns
	$(BIN)/python -m islands.cli demo

bench: $(STAMP) ## Measure, one program after the other: those of docs/testing.md, or BENCH="link codecs"
	@set -e; for name in $(BENCH); do echo "== $$name"; $(BIN)/python -m tests.benchmarks.$$name; done

simulate: $(STAMP) ## Run fault schedules on the virtual clock, SEEDS of them
	$(BIN)/pytest tests/lab/world --seeds $(SEEDS) --numprocesses $(WORKERS) --quiet

clean: ## Remove the virtual environment and everything generated
	rm -rf $(VENV) build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .jax_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
