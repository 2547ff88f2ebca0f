# Two commands matter: `make demo` runs the whole flow, `make test` runs the tests of every save.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# a worker takes a file at a time, in the order that tests/conftest.py gives; on two cores three workers run the slow tests,
# which wait for other processes for two fifths of their time
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all check docs zipapp cuda-ready cuda-check gpu-check slurm-check clean

demo: $(VENV)/.ready  ## set up, then doctor, bench, tune and train on the built-in quickstart
	$(BIN)/python tools/demo.py

test: $(VENV)/.ready-test  ## set up and run all tests but the slow ones: some 10 minutes on two cores
	$(PYTEST) -n 2 -m "not slow and not gpu and not standin"

test-all: test  ## then the slow ones, so that each test has run once: some 13 minutes more
	$(PYTEST) -n 3 -m "slow and not gpu and not standin"

check: $(VENV)/.ready-test $(VENV)/.ready-docs  ## lint, types, layers, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tools/elsewhere.ini --platform win32 --cache-dir .mypy_cache/win32
	$(BIN)/mypy --config-file tools/elsewhere.ini --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/lint-imports
	$(BIN)/python tools/help_blocks.py
	$(BIN)/python tools/prepare.py
	$(BIN)/python -m benchmarks.gpu_check.readme
	$(BIN)/python -m tools.handbook

zipapp: $(VENV)/.ready  ## gpudoc.pyz: doctor as one file, for machines where nothing can be installed
	$(BIN)/python tools/zipapp.py

docs: $(VENV)/.ready-docs  ## the handbook as a site that needs no network: build/handbook/site/index.html
	$(BIN)/python -m tools.handbook

cuda-ready: $(VENV)/.ready-test  ## what cuda-check needs, fetched and built: some 6 minutes the first time
	$(BIN)/python -m tests.standin.environment --prepare

cuda-check: $(VENV)/.ready-test  ## without a GPU: the tests of the CUDA paths on PyTorch's CUDA wheels over the stand-in
	$(BIN)/python -m tests.standin.environment

gpu-check:  ## on a machine with a GPU: PyTorch's build for it, then the acceptance plan and its record: 25 minutes
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m benchmarks.gpu_check.wheel
	$(BIN)/python -m benchmarks.gpu_check

slurm-check: $(VENV)/.ready  ## as root on Debian: a real one-node SLURM runs the sbatch file that train writes
	$(BIN)/python campaigns/slurm_check.py --install

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch" -e ".[train]"
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,test]"
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,docs]"
	touch $@

clean:  ## remove the environment and what runs left behind
	rm -rf $(VENV) build dist .gpudoc runs
