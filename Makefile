# make demo    a first result: builds the bundled model into an executable, runs it
# make test    all tests
# make lint    style and types
# make bench   speed against onnxruntime (needs a quiet machine)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.test-installed
TORCH_STAMP := $(VENV)/.torch-installed
TORCH := torch==2.13.0+cpu
TORCH_INDEX := https://download.pytorch.org/whl/cpu
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

# The tests of PyTorch models want its CPU build: 200 MB, from wherever pip finds one. Without it they are skipped.
$(TORCH_STAMP): $(TEST_STAMP)
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	  || $(BIN)/python -m pip install -q --disable-pip-version-check $(TORCH) 2>/dev/null \
	  || $(BIN)/python -m pip install -q --disable-pip-version-check --retries 1 $(TORCH) --extra-index-url $(TORCH_INDEX) 2>/dev/null \
	  || echo "no CPU build of PyTorch is to be had: its tests are skipped"
	@touch $@

test: $(TORCH_STAMP)
	@sh tools/test_tools.sh
	@$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal tests

lint: $(TEST_STAMP)
	@$(BIN)/ruff check monobloc tests
	@$(BIN)/mypy monobloc

bench: $(TEST_STAMP)
	@$(BIN)/python bench/run.py

clean:
	rm -rf build $(VENV)
