# Needs make, git and Python 3.11 or newer; everything else goes into .venvs/.
#   make demo | test | serve | lint | bench | soak | lock | clean        PYTHON=python3.13 chooses another Python

PYTHON ?= python3
MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
LOCKS := requirements/py$(subst .,,$(MINOR))
MAKEFLAGS += --no-print-directory

# One environment for each purpose; its stamp is newer than what it was made from.
environment = .venvs/$(1)-$(MINOR)
installed = $(call environment,$(1))/installed
EXTRA_service := service
EXTRA_client := demo
EXTRA_test := test
EXTRA_lint := dev

.PHONY: demo test serve lint bench soak lock clean torch image
.DEFAULT_GOAL := demo
.DELETE_ON_ERROR:
.SECONDEXPANSION:

demo: $(call installed,service) $(call installed,client)
	@$(call environment,service)/bin/gradwire demo --client-python $(call environment,client)/bin/python

test: $(call installed,test)
	$(call environment,test)/bin/pytest tests -q $(PYTEST)

serve: $(call installed,service)
	$(call environment,service)/bin/gradwire serve $(or $(FILES),examples/mri.py examples/fft.py examples/tutorial.py)

lint: $(call installed,lint)
	$(call environment,lint)/bin/ruff check .
	$(call environment,lint)/bin/ruff format --check .
	$(call environment,lint)/bin/mypy client service examples benchmarks

# ONLY=small,large measures some of the bars; it then leaves the recorded results as they are.
bench: $(call installed,test) $(call installed,bench-peers)
	$(call environment,test)/bin/python -m benchmarks.bench "$(ONLY)" --peers-python $(call environment,bench-peers)/bin/python

$(call installed,bench-peers): requirements/peers.txt
	@echo "== environment $(@D): what the benchmarks compare with"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --requirement requirements/peers.txt
	@touch $@

# Ten thousand requests of nearly as many shapes, and where the memory stands: make soak N=1000 is quicker.
soak: $(call installed,test)
	$(call environment,test)/bin/python -m benchmarks.soak $(N)

# Resolves pyproject.toml's ranges anew and records the versions for this Python.
lock:
	$(PYTHON) -m venv --clear $(call environment,lock)
	$(call environment,lock)/bin/python requirements/lock.py

# The Dockerfile's steps, run in a bare virtual environment instead of an image.
image: $(call installed,test)
	$(call environment,test)/bin/pytest tests/packaging -q -m image

# PyTorch beside the tests' environment; its tests are skipped without it.
torch: $(call environment,test)/torch
$(call environment,test)/torch: $(call installed,test) requirements/torch.txt
	@echo "== PyTorch"
	$(call environment,test)/bin/python -m pip install --requirement requirements/torch.txt
	@touch $@

clean:
	rm -rf .venvs build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

.venvs/%-$(MINOR)/installed: pyproject.toml $$(wildcard $(LOCKS)-$$*.txt)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Gradwire needs Python 3.11 or newer: make PYTHON=...")'
	@echo "== environment $(@D)"
	$(PYTHON) -m venv $(@D)
ifneq ($(wildcard $(LOCKS)-test.txt),)
	$(@D)/bin/python -m pip install --requirement $(LOCKS)-$*.txt
	$(@D)/bin/python -m pip install --no-deps --no-build-isolation --editable .
	$(@D)/bin/python -m pip check
else
	@echo "No tested versions are recorded for Python $(MINOR): installing the newest that pyproject.toml allows."
	$(@D)/bin/python -m pip install --editable '.[$(EXTRA_$*)]'
endif
	@touch $@
