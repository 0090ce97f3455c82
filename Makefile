# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test setup clean
setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

test: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

clean:
	rm -rf .venv runs build dist
