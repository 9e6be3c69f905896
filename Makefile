# Every target does its own set-up: a machine with Python >= 3.10 and make is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# make torture MINUTES=40 SEED=1 ONLY="kills crowd": more time, other moments, some faults only
# make mutants SAMPLE=all SEED=1 RESULTS=verdicts.jsonl: all of them, another sample, go on where a run was stopped
SAMPLE ?= 300
SEED   ?= 0
MINUTES ?= 15
PEERS ?= .venv-peers
# builds one in which torchvision's CUDA wheel is at peace with a CPU's torch, where it is at hand
PEERS_SCRIPT ?= ../shared/bin/peer-avalanche-env

.PHONY: help demo test test-peers docs lint bench mutants torture clean

.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo  ## the one-minute tour: the paper's methods on Split-Digits, a table and a report
	$(BIN)/tmln demo

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest -n auto --dist worksteal

test-peers: $(PEERS)/.ready  ## the integration with Avalanche, in an environment of its own: it needs torchvision
	$(PEERS)/bin/python -c "import avalanche"
	PYTHONPATH=src $(PEERS)/bin/python -m pytest -W ignore tests/integrations/test_avalanche.py

docs: $(VENV)/.docs  ## the documentation as a site, site/index.html: built offline, a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs site
	@echo "site/index.html"

lint: $(VENV)/.dev  ## style and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev  ## the speed goals, as ratios
	$(BIN)/python -m benchmarks

mutants: $(VENV)/.dev  ## a mutation test: faults put in one at a time, and which of them no test notices
	$(BIN)/python -m benchmarks.mutants --sample $(SAMPLE) --seed $(SEED) $(if $(RESULTS),--results $(RESULTS))

torture: $(VENV)/.fuzz  ## faults by the hundred: kills, full disks, damage, crowds, clocks, fuzz; what is lost
	$(BIN)/python -m benchmarks.torture --minutes $(MINUTES) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(PEERS) .pytest_cache .mypy_cache .ruff_cache

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

$(VENV)/.fuzz: $(VENV)/.dev
	$(PIP) -e '.[fuzz]'
	@touch $@

$(PEERS)/.ready: pyproject.toml
	if [ -f $(PEERS_SCRIPT) ]; then bash $(PEERS_SCRIPT) $(PEERS); else $(PYTHON) -m venv $(PEERS); fi
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[avalanche]' pytest hypothesis
	@touch $@
