# make demo    a first result: builds the bundled model into an executable, runs it
# make test    all tests
# make lint    style and types
# make bench   speed against onnxruntime (needs a quiet machine)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.test-installed
JOBS ?= $(shell nproc)

.PHONY: demo test lint bench clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (PYTHON=python3.x make ...)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "installing Monobloc and its compiler into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(TEST_STAMP): pyproject.toml $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

test: $(TEST_STAMP)
	@sh tools/test_tools.sh
	@$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal tests

lint: $(TEST_STAMP)
	@$(BIN)/ruff check monobloc tests
	@$(BIN)/mypy monobloc

bench: $(TEST_STAMP)
	@$(BIN)/python bench/run.py

clean:
	rm -rf build $(VENV)
