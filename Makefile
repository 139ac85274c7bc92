# The one door for people and CI. `make` alone prints what it can do.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help

help: ## print these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:[^#]*## /\t/' | while IFS="$$(printf '\t')" read -r name text; do printf '%-10s %s\n' "$$name" "$$text"; done

# Rebuilt when the dependencies change; the stamp is written last, so a broken install is redone.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

install: .venv/installed ## create .venv with collc and its development tools

demo: .venv/installed ## set up what is needed and run the main job: real topologies in, verified files out (out/)
	@set -e; for collective in allgather reduce_scatter allreduce; do \
	  $(BIN)/collc synth dgx-a100:hosts=2 -c $$collective -b executor -d out/executor; \
	  $(BIN)/collc synth mi250:hosts=1 -c $$collective -b rccl -d out/rccl; \
	  $(BIN)/collc synth mi250:hosts=2 -c $$collective -b rccl -d out/rccl; \
	  $(BIN)/collc synth torus2d:dims=4x4 -c $$collective --in-place -b classic -d out/classic; \
	done
	@set -e; for runtime in executor rccl classic; do $(BIN)/collc verify out/$$runtime --runtime $$runtime; done

test: .venv/installed ## set up what is needed and run all tests
	$(BIN)/python -m pytest -n 2

lint: .venv/installed ## lint, format and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test ## lint, format, strict types and all tests

golden: .venv/installed ## rewrite the golden files
	$(BIN)/python -m pytest tests/test_backend.py --update-golden

bench: .venv/installed ## run the benchmarks
	$(BIN)/python -m pytest tests/bench/bench_*.py -s

FUZZ_SECONDS ?= 60
fuzz: .venv/installed ## run the coverage-guided fuzzer on every reader, FUZZ_SECONDS each
	$(BIN)/python -m pip install --quiet --editable '.[dev,fuzz]'
	@set -e; for reader in $$($(BIN)/python tests/fuzz/run.py); do \
	  $(BIN)/python tests/fuzz/run.py $$reader -max_total_time=$(FUZZ_SECONDS) -verbosity=0; done

clean: ## remove what the targets above made
	rm -rf .venv out

.PHONY: help install demo test lint check golden bench fuzz clean
