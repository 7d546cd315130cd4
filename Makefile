# The two commands of the README are `make demo` and `make test`; what CI runs is `make check`,
# `make test`, `make test-vscode`, `make test-slow`, `make test-lowest`, `make test-trainers` and
# `make test-torch`.
# Everything is installed into .venv, and for the last two into .venv-lowest and .venv-integrations,
# once for each set of requirements.

# A Python from 3.11 on that can make virtual environments: python3 if it is one, else the
# newest. Each is started, because a name on the PATH may be a stub for a version that is not there.
PYTHONS = python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for python in $(PYTHONS); do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	2>/dev/null && echo "$$python" && break; done)

VENV := .venv
RUN := $(VENV)/bin/
# Windows has programs of an environment elsewhere; there only wheels are built.
IN_VENV = $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/$(1)
BENCHMARKS := startup coverage kineto_parse against_hta nsight_parse costs annotation_cost window_cost serving \
              perfetto_export snapshot report_page remedies
CONSTRAINTS := constraints.txt
# What is installed is made from them: what changes in one of them is installed anew.
BUILT := setup.cfg setup.py pyproject.toml parsers/_dictionary.h parsers/_scan.c \
         parsers/_snapshot_events.c analysis/_nest.c \
         pyprof2/reports/perfetto/_packets.c
REQUIREMENTS := $(BUILT) constraints.txt
# What CI installs, by hash.
HASHED := requirements/ci.txt

# What depends most on the versions of what is read and written with.
LOWEST := tests/test_columns.py tests/test_image.py tests/parsers tests/store tests/api/test_run.py \
	tests/cli/test_prof.py \
	tests/analysis/job tests/analysis/time tests/analysis/summaries/test_compare.py \
	tests/analysis/summaries/test_compared_sides.py tests/analysis/summaries/test_rows.py \
	tests/pipeline/test_results_in_parts.py tests/reports/page \
	$(addprefix tests/reports/test_,pyprof_columns.py chrome_trace.py heading.py files.py)

# What has targets of its own.
APART := pages or minutes or slow or release

# Tests start hundreds of processes: what Python compiled once is kept, whoever says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-release test-lowest in-lowest test-integrations test-trainers \
	in-trainers test-torch in-torch \
	check types docs fuzz fuzz-native \
	bench \
	generate linkcheck requirements dist in-dist wheels in-wheels installed web vscode test-vscode pictures clean

help:
	@echo 'make demo      install, train a small network, and print its profile'
	@echo 'make test      install, and run the tests (PYTEST_ARGS=…)'
	@echo 'make test-slow  slow tests that every change needs: journeys, a page in a browser, scripts under capture'
	@echo 'make test-release  all other tests, half an hour of them, and then those that measure'
	@echo 'make test-lowest   the same for readers and store, with the oldest versions that will do'
	@echo 'make test-integrations  both of these:'
	@echo 'make test-trainers  the tests with other trainers, in an environment of their own'
	@echo 'make test-torch  what records, with another torch (TORCH=2.14.1), which brings gigabytes of CUDA'
	@echo 'make check     lint, format, types, documentation'
	@echo 'make docs      run all that the documentation shows, and build it in build/docs'
	@echo 'make linkcheck  follow the links of the documentation; needs a network'
	@echo 'make generate  write the generated parts of the documentation anew'
	@echo 'make requirements  write the hashes of what CI and releases install anew'
	@echo 'make dist      the wheel and the source archive, in dist'
	@echo 'make installed  try them in fresh environments (TRY="python3.11 python3.13")'
	@echo 'make wheels    the wheels of a release for this system, in wheels, with cibuildwheel'
	@echo 'make web       build the page of a report anew, with npm'
	@echo 'make vscode    build the extension for VS Code, editors/vscode/pyprof2.vsix, with npm'
	@echo 'make test-vscode  test it in code-server, which is installed into ~/.cache once'
	@echo 'make pictures  take the pictures of the documentation anew, with Chromium'
	@echo 'make fuzz      damaged traces, exports and stores, long names, new examples; none may crash'
	@echo 'make fuzz-native  the compiled readers with sanitizers (SECONDS=60)'
	@echo 'make bench     measure the speed that we claim'

demo: $(VENV)/.annotate
	$(RUN)pyprof2 demo

test: $(VENV)/.annotate,test
	$(RUN)python -m pytest -n auto -m 'not ($(APART))' --ignore tests/integrations $(PYTEST_ARGS)

# Of what opens the page of a report in a browser or starts programs by the hundred, one of each kind;
# and single tests that take seconds, such as most journeys.
# Tests that share what is dear to make, and all of nsys, run on one worker.
test-slow: $(VENV)/.annotate,test
	$(RUN)python -m pytest -n auto --dist loadgroup -m '($(APART)) and not release' \
		--ignore tests/integrations $(PYTEST_ARGS)

# The others, which a change rarely breaks; nothing runs beside those that measure.
test-release: $(VENV)/.annotate,test
	$(RUN)python -m pytest -n auto --dist loadgroup -m 'release and not alone' \
		--ignore tests/integrations $(PYTEST_ARGS)
	$(RUN)python -m pytest -m alone --ignore tests/integrations $(PYTEST_ARGS)

# The oldest numpy has no wheels for Python 3.13 and later.
test-lowest:
	@$(MAKE) --no-print-directory VENV='$(VENV)-lowest' PYTHONS='python3.11 python3.12 python3' \
		CONSTRAINTS=constraints-lowest.txt HASHED=requirements/ci-lowest.txt in-lowest

in-lowest: $(VENV)/.lowest
	$(RUN)python -m pytest -n auto -m 'not (real_trace or $(APART))' $(LOWEST) $(PYTEST_ARGS)

# What others make that we work with: trainers, and another torch.
test-integrations: test-trainers test-torch

# transformers, lightning, accelerate and timm, TensorBoard and a server of S3 bring much with them,
# which nothing else needs.
test-trainers:
	@$(MAKE) --no-print-directory VENV='$(VENV)-integrations' \
		HASHED='$(HASHED) requirements/ci-integrations.txt' in-trainers

in-trainers: $(VENV)/.annotate,test,integrations $(VENV)/.timm
	$(RUN)python -m pytest tests/integrations tests/journeys/test_trainers.py $(PYTEST_ARGS)

# The observer is compiled for the torch that runs, the notes of compiled code ask what is private to
# it, and it is its libkineto that `watch` talks to. CI runs the newest, where pip has it on the disk:
# of PyPI it is 3 GB to fetch, and 5.5 GB in the environment. What is marked of the trainings is
# compared with the torch of .venv, if there is one. Run by hand were 2.6.0 and 2.9.1 (in 2.6 to 2.9
# jobs of `watch` may end in the import of torch: pytorch issue 163545).
TORCH ?= 2.14.1
test-torch:
	@$(MAKE) --no-print-directory VENV='$(VENV)-torch-$(TORCH)' OTHER='$(abspath $(RUN)python)' in-torch

in-torch: $(VENV)/.torch
	PYPROF2_OTHER_PYTHON='$(wildcard $(OTHER))' $(RUN)python -m pytest -n auto -m 'not ($(APART))' \
		tests/nvtx tests/capture tests/watch $(PYTEST_ARGS)
	$(RUN)python -m pytest -n auto --dist loadgroup -m 'not (pages or release)' tests/journeys \
		tests/cli/test_demo.py $(PYTEST_ARGS)

check: $(VENV)/.annotate,test,docs
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	@$(MAKE) --no-print-directory -j2 --output-sync types docs

types: $(VENV)/.annotate,test,docs
	$(RUN)mypy
	$(RUN)python -m tests.words

# What the pages show is run, the notebook and every command, and is red where it is not what they say.
docs: $(VENV)/.annotate,test,docs
	$(RUN)python -m docs.generate --check
	$(RUN)sphinx-build -q -n -W -b html docs build/docs
	@echo 'build/docs/index.html'

linkcheck: $(VENV)/.annotate,test,docs
	$(RUN)sphinx-build -q -b linkcheck docs build/links

generate: $(VENV)/.annotate,test,docs
	$(RUN)python -m docs.generate

# npm checks each package against the hash in web/package-lock.json.
web:
	cd web && npm ci && npm run build

# The same, with editors/vscode/package-lock.json.
vscode:
	cd editors/vscode && npm ci && npm run build

# The tests skip, and say why, where code-server or what builds the extension cannot be had. CI does
# not compile it, which takes minutes: there the tests of one start of it run, two minutes, where the
# cache has it. VSCODE=1 does all of it.
VSCODE ?= $(if $(CI),,1)
CODE_SERVER ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/pyprof2/code-server
test-vscode: $(VENV)/.annotate,test
	VSCODE='$(VSCODE)' sh editors/vscode/code-server.sh '$(RUN)python' '$(CODE_SERVER)'
	-test ! -e '$(CODE_SERVER)/ready' || $(MAKE) --no-print-directory vscode
	PYPROF2_CODE_SERVER='$(CODE_SERVER)' $(RUN)python -m pytest \
		tests/vscode$(if $(VSCODE),,/test_extension.py) $(PYTEST_ARGS)

pictures: $(VENV)/.annotate,test
	$(RUN)python -m docs.screenshots

# And examples that `make test` does not have, of the properties that it checks: what fails is kept
# in tests/examples, where the next `make test` finds it.
fuzz: $(VENV)/.annotate,test
	$(RUN)python -m tests.fuzz_traces --count 2000
	$(RUN)python -m tests.fuzz_traces --count 500 --kind exports
	$(RUN)python -m tests.fuzz_traces --count 500 --kind pages
	$(RUN)python -m tests.fuzz_traces --count 2000 --kind stores
	$(RUN)python -m tests.fuzz_traces --count 2000 --kind names
	$(RUN)python -m tests.compare_scanners --count 2000
	$(RUN)python -m tests.compare_snapshots --count 2000
	PYPROF2_FUZZ=1 $(RUN)python -m pytest -n auto -m 'hypothesis and not ($(APART))' \
		--ignore tests/integrations $(PYTEST_ARGS)

# gcc or clang, and its sanitizers.
SECONDS ?= 60
fuzz-native: $(VENV)/.annotate,test
	$(RUN)python -m tests.fuzz_native --seconds $(SECONDS)

bench: $(VENV)/.annotate,test
	@set -e; for program in $(BENCHMARKS); do \
		echo "== $$program"; $(RUN)python -m "benchmarks.$$program"; done

requirements: | $(VENV)
	$(RUN)python -m pip install --disable-pip-version-check -c constraints.txt uv
	$(RUN)python requirements/generate.py

# What builds a release is installed by hash, and nothing beside it.
dist:
	@$(MAKE) --no-print-directory VENV='$(VENV)-dist' in-dist

in-dist: | $(VENV)
	$(RUN)python -m pip install $(BY_HASH) -r requirements/build.txt
	rm -rf dist
	$(RUN)python -c "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"

# One for all Pythons from 3.11 on, for this system; on Linux in containers, which need docker.
CIBUILDWHEEL := 4.3.5
wheels:
	@$(MAKE) --no-print-directory VENV='$(VENV)-wheels' in-wheels

in-wheels: | $(VENV)
	$(call IN_VENV,python) -m pip install --disable-pip-version-check 'cibuildwheel==$(CIBUILDWHEEL)'
	$(call IN_VENV,python) -m cibuildwheel --output-dir wheels

# What was built, in fresh environments: TRY='python3.11 python3.13'.
TRY ?= $(PYTHON)
installed:
	'$(PYTHON)' requirements/installed.py dist $(TRY)

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-integrations $(VENV)-torch-* $(VENV)-dist $(VENV)-wheels \
		build dist wheels *.egg-info \
		web/node_modules editors/vscode/node_modules editors/vscode/out editors/vscode/*.vsix

# The versions hold for the build backend too, of which -c says nothing: pip looks for them in one
# variable before its version 25.3, in the other one since.
$(VENV)/.%: export PIP_CONSTRAINT = $(CONSTRAINTS)
$(VENV)/.%: export PIP_BUILD_CONSTRAINT = constraints.txt

BY_HASH := --disable-pip-version-check --require-hashes --no-deps
TESTERS := hypothesis pytest pytest-randomly pytest-rerunfailures pytest-xdist

# A stamp for each set of extras: installed, and not older than what names the requirements.
ifeq ($(CI),true)
# All that the files name, and nothing that they do not; torch by its version alone, because the
# wheel for CPUs is another file than the one of this version that others get, and needs less.
$(VENV)/.%: $(REQUIREMENTS) $(HASHED) | $(VENV)
	$(RUN)python -m pip install $(BY_HASH) $(addprefix -r ,$(HASHED))
	$(RUN)python -m pip install --disable-pip-version-check -c constraints.txt torch
	$(RUN)python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch '$@'

$(VENV)/.lowest: $(BUILT) constraints-lowest.txt $(HASHED) | $(VENV)
	$(RUN)python -m pip install $(BY_HASH) $(addprefix -r ,$(HASHED))
	$(RUN)python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch '$@'
else
$(VENV)/.%: $(REQUIREMENTS) | $(VENV)
	$(RUN)python -m pip install --disable-pip-version-check -e '.[$*]'
	@touch '$@'

$(VENV)/.lowest: $(BUILT) constraints-lowest.txt | $(VENV)
	$(RUN)python -m pip install --disable-pip-version-check -e . $(TESTERS)
	@touch '$@'
endif

$(VENV)/.torch: $(BUILT) | $(VENV)
	grep -Ev '^(torch|torchvision|sympy|setuptools|triton)=' constraints.txt >'$(VENV)/constraints.txt'
	PIP_CONSTRAINT='$(VENV)/constraints.txt' $(RUN)python -m pip install --disable-pip-version-check \
		'torch==$(TORCH)' nvtx -e . $(TESTERS)
	@touch '$@'

# Apart, for one training: torchvision of PyPI is for CUDA, and beside torch for CPUs its import fails,
# which ends that of transformers where it is found.
$(VENV)/.timm: requirements/ci-timm.txt | $(VENV)
	$(RUN)python -m pip install $(BY_HASH) -q --upgrade --target $(VENV)/timm -r $<
	@touch '$@'

$(VENV):
	@test -n '$(PYTHON)' || { echo 'no Python 3.11 … 3.14 with venv found; say PYTHON=…' >&2; exit 1; }
	'$(PYTHON)' -m venv '$@'
