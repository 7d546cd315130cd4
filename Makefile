# The two commands of the README are `make demo` and `make test`; what CI runs is `make check`,
# `make test`, `make test-lowest` and `make test-integrations`. Everything is installed into .venv, and
# for the last two into .venv-lowest and .venv-integrations, once for each set of requirements.

# A Python from 3.11 on that can make virtual environments: python3 if it is one, else the
# newest. Each is started, because a name on the PATH may be a stub for a version that is not there.
PYTHONS = python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for python in $(PYTHONS); do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	2>/dev/null && echo "$$python" && break; done)

VENV := .venv
RUN := $(VENV)/bin/
BENCHMARKS := startup kineto_parse against_hta nsight_parse costs annotation_cost window_cost
CONSTRAINTS := constraints.txt
REQUIREMENTS := setup.cfg pyproject.toml constraints.txt

# What depends most on the versions of what is read and written with.
LOWEST := tests/parsers tests/test_store.py tests/test_run.py tests/cli/test_prof.py
LOWEST_BUT := not slow and not real_trace

.PHONY: help demo test test-lowest in-lowest test-integrations in-integrations check docs fuzz bench generate clean

help:
	@echo 'make demo      install, train a small network, and print its profile'
	@echo 'make test      install, and run the whole test suite (PYTEST_ARGS=…)'
	@echo 'make test-lowest   the same for readers and store, with the oldest versions that will do'
	@echo 'make test-integrations  the tests with other trainers, in an environment of their own'
	@echo 'make check     lint, format, types, documentation'
	@echo 'make docs      the documentation, in build/docs'
	@echo 'make generate  write the generated parts of the documentation anew'
	@echo 'make fuzz      damaged traces, exports and stores, and long names; none may crash'
	@echo 'make bench     measure the speed that we claim'

demo: $(VENV)/.annotate
	$(RUN)pyprof2 demo

test: $(VENV)/.annotate,test
	$(RUN)python -m pytest -n auto $(PYTEST_ARGS)

# The oldest numpy has no wheels for Python 3.13 and later.
test-lowest:
	@$(MAKE) --no-print-directory VENV='$(VENV)-lowest' PYTHONS='python3.11 python3.12 python3' \
		CONSTRAINTS=constraints-lowest.txt in-lowest

in-lowest: $(VENV)/.lowest
	$(RUN)python -m pytest -n auto -m '$(LOWEST_BUT)' $(LOWEST) $(PYTEST_ARGS)

# transformers, lightning and accelerate bring much with them, which nothing else needs.
test-integrations:
	@$(MAKE) --no-print-directory VENV='$(VENV)-integrations' in-integrations

in-integrations: $(VENV)/.annotate,test,integrations
	$(RUN)python -m pytest tests/integrations $(PYTEST_ARGS)

check: $(VENV)/.annotate,test,docs
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)python docs/generate.py --check
	$(RUN)sphinx-build -q -n -W -b html docs build/docs

docs: $(VENV)/.annotate,test,docs
	$(RUN)sphinx-build -n -W -b html docs build/docs
	@echo 'build/docs/index.html'

generate: $(VENV)/.annotate,test,docs
	$(RUN)python docs/generate.py

fuzz: $(VENV)/.annotate,test
	$(RUN)python -m tests.fuzz_traces --count 2000
	$(RUN)python -m tests.fuzz_traces --count 500 --kind exports
	$(RUN)python -m tests.fuzz_traces --count 2000 --kind stores
	$(RUN)python -m tests.fuzz_traces --count 2000 --kind names

bench: $(VENV)/.annotate,test
	@set -e; for program in $(BENCHMARKS); do \
		echo "== $$program"; $(RUN)python -m "benchmarks.$$program"; done

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-integrations build dist *.egg-info

# The versions hold for the build backend too, of which -c says nothing: pip looks for them in one
# variable before its version 25.3, in the other one since.
$(VENV)/.%: export PIP_CONSTRAINT = $(CONSTRAINTS)
$(VENV)/.%: export PIP_BUILD_CONSTRAINT = constraints.txt

# A stamp for each set of extras: installed, and not older than what names the requirements.
$(VENV)/.%: $(REQUIREMENTS) | $(VENV)
	$(RUN)python -m pip install --disable-pip-version-check -e '.[$*]'
	@touch '$@'

$(VENV)/.lowest: setup.cfg pyproject.toml constraints-lowest.txt | $(VENV)
	$(RUN)python -m pip install --disable-pip-version-check -e . \
		hypothesis pytest pytest-randomly pytest-xdist
	@touch '$@'

$(VENV):
	@test -n '$(PYTHON)' || { echo 'no Python 3.11 … 3.14 with venv found; say PYTHON=…' >&2; exit 1; }
	'$(PYTHON)' -m venv '$@'
