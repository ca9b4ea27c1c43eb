# Two commands set everything up on a fresh machine: `make reproduce` and `make test`.
PYTHON ?= python3
VENV   := .venv
STAMPS := $(VENV)/.stamps
BIN    := $(VENV)/bin
OUT    ?= reports/reproduce
JOBS   ?= 2

# A newer pip than the system's is not needed, and no model is ever fetched.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help reproduce figures bench test lint check compile format clean distclean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

reproduce: $(STAMPS)/core  ## simulate the rows of the paper into OUT (no torch); run it again to resume
	$(BIN)/oppo reproduce --out $(OUT) --resume

figures: $(STAMPS)/core  ## every experiment: a figure, a table and a finding each, into reports/experiments
	$(BIN)/python -m experiments

bench: $(STAMPS)/dev  ## PPO steps per second of the simulator, and whether it is slower than it was
	$(BIN)/oppo bench --suite sim
	$(BIN)/python -m pytest -n 0 tests/bench/bench_sim.py --benchmark-enable \
	  --benchmark-columns=median,iqr,rounds --benchmark-sort=name

test: $(STAMPS)/dev  ## install what the tests need, torch included, and run them all
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(STAMPS)/dev  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check: lint  ## what each commit passes: lint and the fast tests
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

# The strictly typed core compiles as it stands; what is compiled shadows its source until `make clean`.
COMPILED := $(addprefix oppo_sim/,engine/parts.py engine/state.py engine/rules.py engine/occupancy.py \
  engine/loop.py policies/admission.py policies/release.py policies/routing.py \
  costs/decode.py costs/surface.py \
  simulator/lane.py simulator/tasks.py simulator/machine.py simulator/batch.py simulator/work.py)

compile: $(STAMPS)/dev  ## compile the simulator's core with mypyc: about 1.6 times the steps per second
	$(BIN)/mypyc $(COMPILED)
	mv -f ./*__mypyc*.so "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
	rm -rf build

format: $(STAMPS)/dev  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove caches and build products
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks
	find oppo_sim -name "*.so" -delete
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## remove the virtual environment too; run folders stay
	rm -rf $(VENV)

# The stamps live in the environment, so they vanish with it.
$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/core: pyproject.toml constraints.txt | $(STAMPS)/venv
	@echo 'Installing the core (half a minute) ...'
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

$(STAMPS)/dev: pyproject.toml constraints.txt | $(STAMPS)/venv
	@echo 'Installing all that the tests need, torch included (a few minutes) ...'
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch $(STAMPS)/core $@
