# `make test` and `make lint` create the virtual environment first if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := engine trainer export tests benchmarks

.PHONY: test lint format clean

test: $(READY)
	$(BIN)/pytest

lint: $(READY) .typing/mx
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	MYPYPATH=.typing $(BIN)/mypy -p mx.engine -p mx.trainer

format: $(READY)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

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
	rm -rf $(VENV) .typing build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
