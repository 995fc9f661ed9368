# Every target works on a fresh machine: the first one to run creates .venv, once.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help install reproduce test test-full lint format bench families mutants faults pairs docs release

help:
	@echo "make reproduce   the main job: the paper, its controls and its claims, in minutes"
	@echo "make test        the tests; make test-full: all grids and counts at full size"
	@echo "make lint        ruff and pyright; make format: ruff's formatter and fixes"
	@echo "make docs        the documentation as a site: out/docs/index.html"
	@echo "make bench       benchmarks on a quiet machine, and docs/benchmarks.md from what they measured"
	@echo "make families    every causal family of transformers, boosted as a tiny model: docs/families.md"
	@echo "make mutants     planted bugs, each with the test that notices it"
	@echo "make faults      two hours of attempts to break what is promised: docs/reliability.md; goes on where it was"
	@echo "make pairs       the trained models of pairs/ once more, in half an hour"
	@echo "make release     wheel and source archive of this commit in dist/, built, compared and tried"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -c constraints.txt -e '.[dev,report,hf]'
	@touch $@

reproduce: $(INSTALLED)
	$(BIN)/boosted-attention reproduce

test: $(INSTALLED)
	$(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder

test-full: $(INSTALLED)
	$(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder --full

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(INSTALLED)
	$(BIN)/pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks

families: $(INSTALLED)
	$(BIN)/python -m families --all

mutants: $(INSTALLED)
	$(BIN)/python -m mutants

faults: $(INSTALLED)
	$(BIN)/python -m tests.faults

pairs: $(INSTALLED)
	$(BIN)/python -m pairs

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "out/docs/index.html; with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory out/docs"

release: $(INSTALLED)
	$(BIN)/python -m release
