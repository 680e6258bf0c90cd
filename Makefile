# Two commands do everything on a fresh machine: `make play` and `make test`.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help setup play test test-long lint bench bundle clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: ## Make .venv and install (skipped when done)
	@$(PYTHON) tools/setup.py

play: setup ## Set up, play matches through the whole system, replay them
	@$(BIN)/python tools/make_bundle.py --out .ostinato/bundle
	@$(BIN)/ostinato demo

test: ## Set up, then lint, types, import rules and all tests
	@$(PYTHON) tools/setup.py --dev
	@$(MAKE) --no-print-directory lint
	@# compiled once, not by each of the commands that the tests start
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

test-long: ## The tests at their full counts
	@$(PYTHON) tools/setup.py --dev
	$(BIN)/python -m pytest --timeout 3600

lint: ## Formatting, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

bench: ## Every benchmark that needs no GPU; tables on the terminal
	@$(PYTHON) tools/setup.py --dev
	$(BIN)/python -m benchmarks

bundle: setup ## Make the small random model bundle (.ostinato/bundle)
	@$(BIN)/python tools/make_bundle.py --out .ostinato/bundle

clean: ## Remove the environment and everything that runs left behind
	rm -rf .venv .venv.lock .ostinato .pytest_cache .ruff_cache .hypothesis
