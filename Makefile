# Two commands do everything on a fresh machine: `make demo` and `make test`. `make docs` builds the documentation site.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet
# `make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu` takes torch's build without CUDA: 0.2 GB instead of 2.7.
TORCH_INDEX ?=

.PHONY: demo test docs setup clean
setup: .venv/.ready

# What the demo needs: torch and the dependencies without extras. `make test` adds all extras and the tools of development.
.venv/.demo: pyproject.toml constraints.txt requirements.core.lock
	$(PYTHON) -m venv .venv
	@echo "Installing torch and 44 packages into .venv. On Linux this downloads 2.8 GB, or 0.24 GB without CUDA (see Makefile)."
	$(PIP) --no-deps --constraint constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) --no-deps --require-hashes --requirement requirements.core.lock
	$(PIP) --constraint constraints.txt --editable .
	@touch $@

.venv/.ready: .venv/.demo requirements.lock
	$(PIP) --no-deps --require-hashes --requirement requirements.lock
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: .venv/.demo
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

test: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

docs: setup
	$(PIP) --constraint constraints.txt --editable '.[docs]'
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/document_site

clean:
	rm -rf .venv runs build dist
