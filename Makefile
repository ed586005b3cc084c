# Every target creates the virtual environment it needs first, if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := __init__.py __main__.py engine trainer export tests benchmarks docs

DEMO := .venv-demo

.PHONY: demo test quick lint format types style rooms tables docs clean clients

# The engine alone, without torch, as a user installs it.
demo: $(DEMO)/.ready
	$(DEMO)/bin/mx-align tests/data/sample.en tests/data/sample.fr --langs en-fr

$(DEMO)/.ready: pyproject.toml constraints.txt $(shell find engine -name '*.py' -o -path '*models*')
	test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install -q -c constraints.txt .
	touch $@

test: $(READY)
	$(BIN)/pytest -n auto

# What answers within a minute: the tests that are not marked slow.
quick: $(READY)
	$(BIN)/pytest -n auto -m "not slow"

# Programs of other people, for tests/clients/, apart from our own packages.
clients: $(READY)
	$(BIN)/pip install -q --no-deps --upgrade --target .clients -r tests/clients.txt

lint: $(READY) types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

# mypy checks the package as it is installed, with all its files in one place; pyright reads the
# checkout, as editors do.
types: $(READY)
	rm -rf build
	$(BIN)/pip install -q --no-deps --no-build-isolation --target build/installed .
	cd build/installed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p mx_align
	$(BIN)/pyright
	$(BIN)/python -m mx_align.tests.support.check_definitions

format: $(READY)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# How the code reads: names, docstrings, sizes.
style: $(READY)
	$(BIN)/python -m mx_align.tests.support.measure_style

# The picture of the rooms in docs/architecture.md, from the imports.
rooms: $(READY)
	$(BIN)/python -m mx_align.docs.draw_rooms

# Tables and plots of README.md and docs/, from benchmarks/results/.
tables: $(READY)
	$(BIN)/python -m mx_align.benchmarks.tables

# Made again when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch setuptools -e ".[dev]"
	touch $@

# The documentation site; a link that leads nowhere is an error.
docs: $(READY)
	$(BIN)/python -m mx_align.docs.build_site build/docs

clean:
	rm -rf $(VENV) $(DEMO) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
