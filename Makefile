# Two commands do everything: `make run` and `make test`. Both set up what they need first.
#   make run PROFILE=cpu RUNTIME=auto OUTPUT=folder ARGS="--battery kernels"
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup engine image run test nightly selftest mutation lint clean

PYTHON  ?= python3.11
VENV    ?= .venv
PROFILE ?= cpu
RUNTIME ?= auto
OUTPUT  ?=
ARGS    ?=
BASE    ?= kit-base:bookworm
KIT      = $(VENV)/bin/kit
LOCKS    = images/cpu.lock dev.lock
STAMP    = $(VENV)/.installed

setup: $(STAMP)

$(STAMP): $(LOCKS) pyproject.toml scripts/setup.sh
	scripts/setup.sh $(PYTHON) $(VENV) $(LOCKS)
	touch $(STAMP)

# A Docker Engine, and a local base image for machines that reach no registry.
engine:
	scripts/docker-engine.sh base $(BASE)

image: setup
	scripts/image.sh $(KIT) $(BASE)

# With an engine that answers, the run goes into the CPU image, which is built (or found unchanged) first.
run: setup
	@if [[ $(PROFILE) == cpu && $(RUNTIME) != local ]]; then scripts/image.sh $(KIT) $(BASE); fi
	$(KIT) run --profile $(PROFILE) --runtime $(RUNTIME) $(if $(OUTPUT),--output $(OUTPUT)) $(ARGS)

test: setup
	scripts/test.sh $(VENV) $(BASE)

# What takes long and seldom changes: the tests marked nightly, and the CUDA image, which takes gigabytes and a quarter of an hour.
nightly: setup
	KIT_NIGHTLY=1 scripts/test.sh $(VENV) $(BASE)
	$(KIT) images build cuda --base $(BASE) --python 3.11
	$(KIT) images verify cuda --python 3.11

# Every fault of the catalogue against the batteries: what is caught, and whether anything is red without a fault.
# Faults of containers are asked about where an engine answers, so the CPU image is built (or found unchanged) first.
selftest: setup
	@if [[ $(PROFILE) == cpu ]]; then scripts/image.sh $(KIT) $(BASE); fi
	$(KIT) selftest --profile $(PROFILE) --runtime local $(if $(OUTPUT),--output $(OUTPUT)) $(ARGS)

# Are the tests of kit's own judges sharp? Every mutant of them that survives is listed; docs/mutation.md explains them.
mutation: setup
	scripts/mutation.sh $(VENV)

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/hadolint Dockerfile.*

clean:
	rm -rf $(VENV) kit-results build dist mutants
