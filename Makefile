# Daily commands. Each sets up what it needs: a virtual environment in .venv, from pip, with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SMALL := $(VENV)/.demo
SITE := $(VENV)/.docs
MINIMUM := .venv-min
BENCHMARKS := against_pyg against_pseudocode settled_against_fixed large_graphs growth limit node_order lanes hops \
	vector_kernels first_call files ids training tabular tabular_held_out neighbor_search scale scale_cost partitioned \
	default_call mixed_columns values values_ablation degrees representation arxiv \
	maps map_sizes panel position position_cost suggestions

# A copy of the paper's data sets, when they lie beside the repository; else they are downloaded when needed.
SHARED := $(wildcard ../shared/data)
ifneq ($(SHARED),)
export PCFI_DATA ?= $(CURDIR)/.data
DATA := .data
endif

.PHONY: help demo test test-fast test-min coverage fuzz torture check format bench pages docs docs-links dist clean

help:
	@echo "make demo       fill in removed images of handwritten digits; writes demo.png and demo.html"
	@echo "make test       lint, types, layers and all tests"
	@echo "make test-fast  tests that are not marked slow: about a minute"
	@echo "make test-min   all tests with the oldest supported versions (requirements/minimum.txt)"
	@echo "make coverage   all tests, and which lines they run"
	@echo "make fuzz       property tests on random examples for SECONDS=600; prints how to repeat a failure"
	@echo "make torture    kills, damaged files, full disks, mangled input for SECONDS=600; prints its seed (SEED=1 repeats)"
	@echo "make check      lint, types and layers only"
	@echo "make format     format the code"
	@echo "make docs       build the documentation in build/site, without a network; warnings are errors"
	@echo "make docs-links check the links to other sites"
	@echo "make pages      draw the pictures and run the examples of the pages again"
	@echo "make dist       build wheel and sdist, and try the wheel in a new environment without the repository"
	@echo "make bench      run the benchmarks (some hours; leave the machine alone) and write docs/benchmarks.md"
	@echo "make clean      remove the virtual environments, caches, compiled kernels and what was built"

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(READY) $(SMALL) $(SITE): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) "pip>=25.1"
	$(INSTALL) --constraint constraints.txt --editable "$(if $(filter $(SMALL),$@),.[demo],.)" \
		$(if $(filter $(READY),$@),--group dev) $(if $(filter $(SITE),$@),--group docs)
	touch $@

$(MINIMUM)/.ready: pyproject.toml requirements/minimum.txt
	test -x $(MINIMUM)/bin/python || $(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements/minimum.txt \
		--editable . --group test
	touch $@

.data:
	cp -r $(SHARED) $@
	chmod -R u+w $@

demo: $(if $(wildcard $(READY)),$(READY),$(SMALL))  # without what tests need, such as torch
	$(BIN)/pcfi demo

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check $(DATA)
	$(BIN)/python -m pytest

test-fast: $(READY)
	$(BIN)/python -m pytest -m "not slow" --hypothesis-profile=few tests

test-min: $(MINIMUM)/.ready $(DATA)
	$(MINIMUM)/bin/python -m pytest

coverage: $(READY) $(DATA)
	$(INSTALL) --constraint constraints.txt --group coverage
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered

SECONDS ?= 600
fuzz: $(READY)
	$(BIN)/python tests/helpers/fuzz.py --seconds $(SECONDS)

torture: $(READY)
	PYTHONPATH=tests/helpers $(BIN)/python tests/helpers/torture.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pages: $(READY)
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/value_pictures.py
	$(BIN)/python docs/reproduce.py
	$(BIN)/python docs/marker_genes.py
	$(BIN)/python docs/maps.py
	$(BIN)/python docs/examples.py

docs: $(SITE)
	$(BIN)/python -m sphinx -W --keep-going -b html docs build/site

docs-links: $(SITE)
	$(BIN)/python -m sphinx -W --keep-going -b linkcheck docs build/links

dist: $(READY)
	$(INSTALL) --constraint constraints.txt --group release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/helpers/try_wheel.py dist --constraint constraints.txt --sdist

bench: $(READY) $(DATA)
	for script in $(BENCHMARKS); do $(BIN)/python benchmarks/$$script.py || exit 1; done
	$(BIN)/python benchmarks/tables.py

clean:
	rm -rf $(VENV) $(MINIMUM) build dist .data .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo.png demo.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
