# longtail: `make demo` shows it, `make test` checks it; both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format typecheck pytest quick docs bench clean

help: ## List what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/:/' | awk -F: '{printf "  make %-10s%s\n", $$1, $$2}'

demo: $(VENV)/.base ## Install and compare BCE with the DB loss on a synthetic newswire
	@$(BIN)/longtail demo

test: lint typecheck pytest ## Install and run all checks: ruff, mypy --strict, pytest

lint: $(VENV)/.dev ## Lint and check the formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

typecheck: $(VENV)/.dev ## Check the types of src
	$(BIN)/mypy --strict src

pytest: $(VENV)/.dev ## Run the tests, warnings being errors
	$(BIN)/python -m pytest -q -n auto

quick: $(VENV)/.dev ## Run the unit tests that need no encoder, process or compiler
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n auto -m "not slow"

format: $(VENV)/.dev ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.docs ## Write docs/losses.md from the table of losses, and build the site into site/
	$(BIN)/python docs/make_losses.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site is in site/index.html. To have its search too: $(BIN)/python -m http.server -d site"

bench: $(VENV)/.base ## Time and memory of losses, reading, splits and evaluation
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/splits.py
	$(BIN)/python benchmarks/evaluation.py

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "longtail needs Python 3.11 or newer, found: $$($(PYTHON) --version). Use make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "Could not make a virtual environment. On Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing longtail into $(VENV) (a few minutes the first time) ..."
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing longtail and what builds its site into $(VENV) ..."
	@$(INSTALL) -e '.[docs]'
	@touch $(VENV)/.base $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing longtail and its tools into $(VENV) (a few minutes the first time) ..."
	@$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.base $(VENV)/.docs $@
