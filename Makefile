# Each target sets itself up: a virtual environment in the checkout with the pins of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Neighbouring tests share what they set up: a worker keeps to its stretch and takes from another's only when its own is done.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
SAMPLE ?= 60

.PHONY: verify test test-fast test-thorough lint docs compile versions machines clean
.DEFAULT_GOAL := verify

verify: $(READY)  ## Verify and fuzz the bundled kernels for four minutes; leaves out/verify/report.html
	rm -rf out/verify
	$(BIN)/flashverify fuzz --matrix --minutes 4 --out out/verify

test: $(READY)  ## Pass the tests: every folder, some twelve minutes on two cores
	$(PYTEST)

test-fast: $(READY)  ## Pass the fast tests: every folder, some six minutes on two cores
	$(PYTEST) -m "not slow"

test-thorough: $(READY)  ## Pass what the tests leave out: sweeps and whole runs of which they take representatives
	$(PYTEST) -m thorough

lint: $(READY)  ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## Write a site of all documents with a search; leaves out/site/index.html
	$(BIN)/python docs/build_site.py out/site

compile: $(READY)  ## Compile a sample of the bundled kernels for sm_80, sm_90 and sm_100: hazards and spills, no GPU needed
	$(BIN)/flashverify compile --sample $(SAMPLE)

versions: $(READY)  ## Pass the interpreter's tests and a short search on Triton 3.6, 3.7, 3.8 and 3.9, or on TRITON="3.8.0 ..."
	$(BIN)/python tests/triton_versions.py $(TRITON)

machines: $(READY)  ## Pass the tests as other machines would run them, or MACHINES="blas-Haswell --all"
	$(BIN)/python tests/machines.py $(MACHINES)

clean:
	rm -rf $(VENV) out

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "flashverify needs Python >= 3.11, $(PYTHON) is %d.%d; name another with make PYTHON=..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@
