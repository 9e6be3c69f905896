# Every target does its own set-up: a machine with Python >= 3.10 and make is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# make torture MINUTES=40 SEED=1 ONLY="kills crowd": more time, other moments, some faults only
# make mutants SAMPLE=all SEED=1 RESULTS=statuses.jsonl: all of them, another sample, continue a run
SAMPLE ?= 300
SEED   ?= 0
MINUTES ?= 15
PEERS ?= .venv-peers
# make test-lowest TESTS=tests/optim: some of the suite
LOWEST ?= .venv-lowest
TESTS ?= tests
CLEAN ?= .venv-clean
# make test-peers PEERS_SCRIPT=...: a script that builds the environment, where torchvision's wheel does not fit a CPU's torch
PEERS_SCRIPT ?=
# make test-torch TORCH=2.15.0: the core's tests with another torch; the environment is removed afterwards
TORCH ?=
OTHER ?= .venv-torch
CORE ?= tests/optim tests/curvature tests/learner tests/methods tests/test_metrics.py
# make address URL=https://...: where the repository is, in every file that says so
URL ?=

.PHONY: help demo quick test test-older-cpu test-lowest test-peers test-torch docs lint dist address bench mutants torture clean

.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.demo  ## the one-minute tour: the paper's methods on Split-Digits, a table and a report
	$(BIN)/tmln demo

quick: $(VENV)/.dev  ## the fast tests, within a minute on two cores: run them after each edit
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest -rs -n auto --dist worksteal

# One of the convolutions that CPUs with AVX2 at best take writes past its memory (docs/cpu.md): an allocator notices, where there is one.
# What is left out starts processes with linear layers only.
test-older-cpu: $(VENV)/.dev  ## networks once more, as on a CPU that has AVX2 at best
	allocator=libc_malloc_debug.so.0; [ -z "$$(LD_PRELOAD=$$allocator env true 2>&1)" ] || allocator=; \
	ONEDNN_MAX_CPU_ISA=AVX2 MALLOC_CHECK_=3 LD_PRELOAD=$$allocator \
	  $(BIN)/python -m pytest --ignore=tests/learner/test_together.py --ignore=tests/learner/test_fsdp.py \
	  -rs -n auto --dist worksteal tests/models tests/measure tests/learner tests/golden

test-lowest: $(LOWEST)/.ready  ## all tests, with the lowest versions that the package says it works with
	$(LOWEST)/bin/python -m tests.release.bounds $(LOWEST)/pins.txt
	$(LOWEST)/bin/python -m pytest -rs -n auto --dist worksteal -W default $(TESTS)

test-peers: $(PEERS)/.ready  ## with Avalanche and timm, in an environment of their own: they need torchvision
	$(PEERS)/bin/python -c "import avalanche"
	PYTHONPATH=src $(PEERS)/bin/python -m pytest -W ignore tests/integrations/test_avalanche.py tests/integrations/test_timm.py

test-torch:  ## the core's tests with another torch: make test-torch TORCH=2.15.0 (most bring 4 GB of CUDA libraries)
	@[ -n "$(TORCH)" ] || { echo "which torch? make test-torch TORCH=2.15.0"; exit 2; }
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH) -e '.[digits,images]' pytest pytest-xdist hypothesis scipy
	$(OTHER)/bin/python -m pytest -rs -n auto --dist worksteal -m "not slow" -W default $(CORE)
	rm -rf $(OTHER)

docs: $(VENV)/.docs  ## the documentation as a site, site/index.html: built offline, a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs site
	@echo "site/index.html"

lint: $(VENV)/.dev  ## style and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vermin --quiet --no-tips --violations --target=3.10- src

dist: $(VENV)/.dist  ## wheel and sdist in dist/, checked; the wheel runs the demo in an environment of its own
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tests.release.contents dist
	$(PYTHON) -m venv --clear $(CLEAN)
	$(CLEAN)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$(echo dist/*.whl)[digits,report]"
	cd $(CLEAN) && bin/python -I -m tmln demo --runs tour && test -s tour/report.html

address:  ## change where the repository is: make address URL=https://github.com/NAME/tmln
	$(PYTHON) -m tests.release.address $(URL)

bench: $(VENV)/.dev  ## the speed goals, as ratios
	$(BIN)/python -m benchmarks

mutants: $(VENV)/.dev  ## a mutation test: single edits of the source that no test detects
	$(BIN)/python -m benchmarks.mutants --sample $(SAMPLE) --seed $(SEED) $(if $(RESULTS),--results $(RESULTS))

torture: $(VENV)/.fuzz  ## faults by the hundred: kills, full disks, damage, crowds, clocks, fuzz; what is lost
	$(BIN)/python -m benchmarks.torture --minutes $(MINUTES) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

clean:  ## remove the virtual environments, caches, and what was built
	rm -rf $(VENV) $(PEERS) $(LOWEST) $(CLEAN) $(OTHER) dist site docs/made .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tmln needs Python >= 3.10, this is " + sys.version.split()[0] + "; set PYTHON=/path/to/python3")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[digits,report]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.dist: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dist]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(PIP) -e '.[fuzz]'
	@touch $@

# uv says which versions are the lowest that go together; pip installs them, from wherever it has torch
$(LOWEST)/.ready: pyproject.toml
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip compile --quiet --no-header --no-annotate --python $(LOWEST)/bin/python \
	  --resolution lowest-direct --extra dev pyproject.toml --output-file $(LOWEST)/pins.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/pins.txt -e '.[dev]'
	@touch $@

$(PEERS)/.ready: pyproject.toml
	if [ -n "$(PEERS_SCRIPT)" ]; then bash $(PEERS_SCRIPT) $(PEERS); else $(PYTHON) -m venv $(PEERS); fi
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[avalanche]' timm pytest hypothesis
	@touch $@
