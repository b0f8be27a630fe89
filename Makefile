# Each target sets itself up: a virtual environment in the checkout with the pins of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest -n auto
SAMPLE ?= 60

.PHONY: verify test lint compile versions bench clean
.DEFAULT_GOAL := verify

verify: $(READY)  ## Verify and fuzz the bundled kernels for four minutes; leaves out/verify/report.html
	rm -rf out/verify
	$(BIN)/flashverify fuzz --matrix --minutes 4 --out out/verify

test: $(READY)  ## Pass the tests
	$(PYTEST)

lint: $(READY)  ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

compile: $(READY)  ## Compile a sample of the bundled kernels for sm_80, sm_90 and sm_100: hazards and spills, no GPU needed
	$(BIN)/flashverify compile --sample $(SAMPLE)

versions: $(READY)  ## Pass the interpreter's tests and a short search on Triton 3.6, 3.7, 3.8 and 3.9, or on TRITON="3.8.0 ..."
	$(BIN)/python tests/triton_versions.py $(TRITON)

clean:
	rm -rf $(VENV) out

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "flashverify needs Python >= 3.11, $(PYTHON) is %d.%d; name another with make PYTHON=..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
