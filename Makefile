# Everything runs in .venv, which each target makes for itself where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow lint docs bench clean

demo: $(STAMP)
	$(BIN)/python examples/plot_split_digits.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --cov

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q tests/test_docs.py -k docstring

docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(STAMP)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/default_lambda.py
	$(BIN)/python benchmarks/two_task_optimum.py
	$(BIN)/python benchmarks/silent_units.py
	$(BIN)/python benchmarks/fisher_error.py
	$(BIN)/python benchmarks/kronecker_cost.py
	$(BIN)/python benchmarks/thirty_tasks.py
	$(BIN)/python benchmarks/forgetting.py
	$(BIN)/python benchmarks/scenarios.py
	$(BIN)/python benchmarks/out_of_core.py

clean:
	rm -rf $(VENV) .venv-oldest docs/_build docs/auto_examples docs/generated examples/figures build dist .pytest_cache .ruff_cache .coverage

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)
