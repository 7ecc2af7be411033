# Two commands do all the set-up: `make quickstart` and `make test`. PYTHON chooses the interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test check bench clean

quickstart: $(VENV)/all
	$(BIN)/davylamp quickstart

test: $(VENV)/test
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 2 --dist worksteal

bench: $(VENV)/test
	@for script in benchmarks/speed_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/all: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[all]"
	@touch $@

$(VENV)/test: pyproject.toml | $(VENV)/all
	$(BIN)/python -m pip install --quiet --editable ".[all,test]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache
