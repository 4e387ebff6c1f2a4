# Everything runs inside .venv, which these targets build themselves from requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCKED := $(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement
# Held back together in requirements.lock; everything else is the newest that fits them.
TORCH := 2.13.0
PINS := torch==$(TORCH) transformers==5.17.0 sentence-transformers==6.0.1 pytorch-lightning==2.6.6 bm25s==0.3.16 ir-measures==0.4.3 scipy==1.17.1 faiss-cpu==1.15.1 pymilvus==3.0.2 milvus-lite==3.2.2 bitsandbytes==0.50.2

export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := true

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all chromium test-ecosystem test-ray check format bench-losses lock lock-hashes audit clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY)  ## build .venv with the pinned dependencies and remargin itself

# For Linux, PyPI has torch for CUDA only, which is taken unless pip finds a CPU build elsewhere.
$(READY): requirements.lock requirements-cuda.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "remargin needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	[ "$$(uname)" != Linux ] || $(BIN)/python -m pip install --quiet --dry-run --no-deps torch==$(TORCH)+cpu 2> /dev/null || $(LOCKED) requirements-cuda.lock
	$(LOCKED) requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	@touch $@

demo: $(READY)  ## fine-tune a real encoder on docstrings and see what it gains: under 10 minutes on 2 cores
	rm -rf runs/demo
	$(BIN)/remargin demo

check: $(READY)  ## lint, format check and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## the suite that everyone runs
	$(BIN)/pytest -q -n 2 --dist loadfile

test-all: check chromium  ## everything, the slow tests and those in a browser included
	$(BIN)/pytest -q -m ""

# Where it is missing and cannot be installed so, the tests in a browser are skipped.
chromium:
	@command -v chromium || command -v chromium-browser || { [ "$$(id -u)" = 0 ] && apt-get install --yes --quiet chromium; } || \
	  echo "no Chromium: the tests in a browser will be skipped"

test-ecosystem: .venv-ecosystem/.ready  ## the snippets for LangChain, LlamaIndex, Haystack and PyLate, in .venv-ecosystem
	.venv-ecosystem/bin/pytest -q -W default tests/ecosystem

test-ray: $(READY)  ## the tests on a Ray cluster of two nodes; installs Ray into .venv, 224 MB
	grep == requirements.lock | tr -d '\\' > $(VENV)/versions  # a constraint with a hash would ask for Ray's, too
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/versions 'ray==2.60.0'
	$(BIN)/pytest -q -m slow tests/integrations/test_ray_cluster.py

# PyLate needs other versions than requirements.lock has.
.venv-ecosystem/.ready: tests/ecosystem/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-ecosystem
	.venv-ecosystem/bin/python -m pip install --quiet --requirement tests/ecosystem/requirements.txt
	.venv-ecosystem/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

format: $(READY)  ## reformat the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Material for MkDocs prints an advertisement for its successor otherwise.
docs docs-serve: export NO_MKDOCS_2_WARNING := 1
.PHONY: docs docs-serve

docs: $(READY)  ## build the documentation into site/; a warning is an error
	$(BIN)/mkdocs build --strict

docs-serve: $(READY)  ## show the documentation at localhost:8000 while you write it
	$(BIN)/mkdocs serve

bench-losses: $(READY)  ## time and memory of the losses
	$(BIN)/python benchmarks/losses.py

lock:  ## choose new versions for requirements.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet $(PINS) '.[dev]'
	.venv-lock/bin/python -m pip freeze --all > .venv-lock/pins
	$(PYTHON) .ci/lock.py < .venv-lock/pins > .venv-lock/new && mv .venv-lock/new requirements.lock
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= .venv-lock/bin/python -m pip install --dry-run --ignore-installed --quiet --report .venv-lock/cuda.json torch==$(TORCH)
	$(PYTHON) .ci/lock.py --cuda < .venv-lock/cuda.json > .venv-lock/new && mv .venv-lock/new requirements-cuda.lock
	rm -rf .venv-lock

lock-hashes:  ## write the hashes of the versions in requirements.lock anew
	$(PYTHON) .ci/lock.py < requirements.lock > requirements.lock.new && mv requirements.lock.new requirements.lock

audit: .venv-audit/.ready  ## look for known vulnerabilities in the pinned versions, with pip-audit in .venv-audit
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.lock

.venv-audit/.ready:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet 'pip-audit>=2.9'
	@touch $@

clean:  ## remove .venv and caches
	rm -rf $(VENV) .venv-ecosystem .venv-audit .mypy_cache .pytest_cache .ruff_cache .hypothesis
