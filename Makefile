# Every target creates the virtual environment it needs first, if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := engine trainer export tests benchmarks

DEMO := .venv-demo

.PHONY: demo test lint format tables clean

# The engine alone, without torch, as a user installs it.
demo: $(DEMO)/.ready
	$(DEMO)/bin/mx-align tests/data/sample.en tests/data/sample.fr --langs en-fr

$(DEMO)/.ready: pyproject.toml constraints.txt $(shell find engine -name '*.py' -o -path '*models*')
	test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install -q -c constraints.txt .
	touch $@

test: $(READY)
	$(BIN)/pytest

lint: $(READY) .typing/mx
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	MYPYPATH=.typing $(BIN)/mypy -p mx_align.engine -p mx_align.trainer -p mx_align.export

format: $(READY)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# Tables and plots of README.md and docs/, from benchmarks/results/.
tables: $(READY)
	$(BIN)/python benchmarks/tables.py

# Made again when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch setuptools -e ".[dev]"
	touch $@

# mypy does not read setuptools' package-dir: show it the packages under their import root.
.typing/mx:
	mkdir -p $@
	for part in engine trainer export; do ln -sfn ../../$$part $@/$$part; done

clean:
	rm -rf $(VENV) $(DEMO) .typing build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
