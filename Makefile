# Two commands do everything on a fresh machine: `make demo` and `make test`. `make docs` builds the documentation site.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test docs setup clean
setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

test: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

docs: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/document_site

clean:
	rm -rf .venv runs build dist
