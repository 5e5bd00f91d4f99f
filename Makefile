# Every target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := bash
MAKEFLAGS += --no-print-directory
# Where this is set, each of the thousand processes that the tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

# The first on PATH that can make environments and was built with profiles, else the first that can.
PYTHON ?= $(shell able=; for python in $$(type -ap python3 python3.14 python3.13 python3.12 python3.11); do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	$$python benchmarks/interpreter.py >/dev/null && echo $$python && exit; able=$${able:-$$python}; done; echo $$able)
VENV ?= .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.product
STAMP := $(VENV)/.installed
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check

JOBS ?= 4
SEED ?= 1
SECONDS ?= 60
NAMENODES ?= 3
SEEDS ?= 2000
LIVES ?= 50
# With --every-pair `make lives` fails if two services never were at one block at once, or two faults.
EVERY_PAIR ?=
OUTPUT ?= build/bench.jsonl

.PHONY: help bootstrap demo test test-secure quick coverage newcomer test-pythons dist test-all lint pyright format generate pictures site explore simulate lives lives-nightly crash mutants chaos soak pods upgrade bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

bootstrap: $(STAMP) ## create .venv with the package and every development tool

$(PRODUCT): WANTED := .
$(STAMP): WANTED := .[dev]
$(PRODUCT) $(STAMP): pyproject.toml setup.py
	@if [ -z "$(PYTHON)" ]; then \
		echo "make: no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '$(WANTED)'
	@$(BIN)/paxosblock setup raft --yes
	@touch $@

# What the tests need is 1 GB (Spark, polars, duckdb); a first look at the product needs none of it.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(PRODUCT)) ## a throw-away cluster: write a file, kill nodes on the way, verify every byte
	$(BIN)/paxosblock demo

# Each test has a limit of its own (`timeout` in pyproject.toml), the sum has none: a machine that is
# busy with other things is no fault of the code. Fifteen minutes on a quiet one are the target, of
# two cores: tests wait for each other's time-outs more than they compute, so there are more processes.
# On another Python: make test PYTHON=python3.13 VENV=.venv-3.13
test: $(STAMP) ## the fast tests, in JOBS=4 processes
	$(BIN)/pytest -q -m 'not slow' -n $(JOBS) --max-worker-restart=0

# Without SECURE= all of them, which takes as long as they do plain, and half of it again.
SECURE ?= tests
test-secure: $(STAMP) ## the tests of whole clusters once more, with certificates and block tokens: SECURE="FILES"
	$(BIN)/pytest -q --secure -m 'not slow' -n $(JOBS) --max-worker-restart=0 $(SECURE)

# What a change breaks first: no process is started here, and no cluster lives.
QUICK := tests/*.py tests/api tests/base tests/net tests/client tests/datanode tests/namenode
quick: lint ## what to run before a commit: lint, and the tests of rules, catalog, client, DataNode and net
	$(BIN)/pytest -q -m 'not slow' -n 2 $(QUICK) -k 'not (crash_states or process)'

# Tests that take long, which tracing doubles, or run in processes of their own, are left out.
UNTRACED := crash or runtest or process or explor or planted or full_disk
coverage: $(STAMP) ## how much of protocol, DataNode and NameNode the quick tests of these reach, with a floor
	$(BIN)/pytest -q -m 'not slow' -n $(JOBS) --max-worker-restart=0 --cov --cov-report=term:skip-covered \
		-k 'not ($(UNTRACED))' tests/protocol tests/scripts tests/format tests/datanode tests/namenode

newcomer: $(STAMP) ## type what README and the tutorial say, word by word, in environments that are empty
	$(BIN)/python -m tests.newcomer

PYTHONS ?= python3.11 python3.12 python3.13 python3.14
test-pythons: $(STAMP) ## a wheel on each Python that is here: installed, several NameNodes set up, a file written and read
	$(BIN)/python -m tests.pythons $(PYTHONS)

# An index shows the README without a checkout around it, so its links need an address, and no metadata
# can name raftos, so the wheel brings it (setup.py).
dist: $(STAMP) ## what a package index gets, in dist/: make dist PROJECT_URL=https://HOST/OWNER/NAME
	@[ -n "$(PROJECT_URL)" ] || { echo "make: give the repository's public address: make dist PROJECT_URL=https://HOST/OWNER/NAME" >&2; exit 1; }
	@$(PIP) setuptools
	@PROJECT_URL=$(PROJECT_URL) RAFTOS=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		$(BIN)/python -c 'from setuptools import build_meta as build; build.build_sdist("dist"); build.build_wheel("dist")' >/dev/null 2>&1
	@ls dist

test-all: $(STAMP) ## all tests, the slow ones too
	$(BIN)/pytest -q

lint: $(STAMP) ## style, types, import rules, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_layout.py tests/test_house_rules.py tests/test_citations.py tests/client/test_sync_is_made.py

pyright: $(STAMP) ## the types of the package once more, as editors see them; needs Node.js or npm's registry
	$(BIN)/python -m pyright --warnings

format: $(STAMP) ## rewrite the code in the house format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

generate: $(STAMP) ## rewrite what is made from other source: the client without asyncio, docs/api.md, the reference pages, pictures
	$(BIN)/python -m tests.client.make_sync
	$(BIN)/python -m tests.make_api
	$(BIN)/python -m tests.make_reference
	$(BIN)/python -m tests.make_hdfs
	$(BIN)/python -m tests.make_webhdfs
	$(BIN)/python -m tests.make_s3
	$(BIN)/python -m tests.make_growth
	$(BIN)/paxosblock bench report benchmarks/results/*.jsonl --folder benchmarks/report

# Not a part of `generate`: each run makes other bytes, and it needs a browser (apt-get install chromium).
pictures: $(STAMP) ## take the pictures of the status page for the documents, with Chromium
	$(BIN)/python -m tests.page.pictures

site: $(STAMP) ## build the documents as a site, in build/site; needs no network
	$(BIN)/python -m tests.make_site

explore: $(STAMP) ## check the protocol in every order of messages, with larger bounds than the tests
	$(BIN)/python -m tests.protocol.explore

simulate: $(STAMP) ## run the replicated store in virtual time, with every fault: SEEDS=2000
	$(BIN)/python -m tests.raft.simulate --seeds $(SEEDS)

lives: $(STAMP) ## random lives of a cluster on simulated disks, in virtual time: SEED=1 LIVES=50
	$(BIN)/python -m tests.lives --seed $(SEED) --lives $(LIVES) --jobs $(JOBS) $(EVERY_PAIR)

lives-nightly: LIVES := 200
lives-nightly: EVERY_PAIR := --every-pair
lives-nightly: lives ## two hundred lives of each kind; fails if two services, or two faults, never met: SEED=1

crash: $(STAMP) ## random crashes of a DataNode on a simulated disk: power cuts, kills, two volumes, damaged files: SEED=1 SECONDS=60
	$(BIN)/python -m tests.crash --seed $(SEED) --seconds $(SECONDS)

mutants: $(STAMP) ## plant the more than a hundred faults of tests/mutants, one at a time: each must be noticed by its suite; before a release
	$(BIN)/python -m tests.mutants --jobs $(JOBS)

chaos: $(STAMP) ## bad days of real processes while files are written and names change: SEED=1 SECONDS=60 NAMENODES=3
	$(BIN)/python -m tests.services.chaos --seed $(SEED) --seconds $(SECONDS) --namenodes $(NAMENODES)
	$(BIN)/python -m tests.services.histories --seed $(SEED) --seconds $(SECONDS)

soak: SECONDS := 1200
soak: $(STAMP) ## real processes at work for long, some are killed; then memory, descriptors, threads and disk of each: SECONDS=1200
	$(BIN)/python -m tests.services.soak --seed $(SEED) --seconds $(SECONDS)

IMAGE ?= localhost/paxosblock
RUNTIME ?=
pods: $(STAMP) ## start the pods of deploy/kubernetes by podman, without Kubernetes, and roll them out again: IMAGE=NAME RUNTIME=runc
	$(BIN)/python -m tests.pods --image $(IMAGE) $(if $(RUNTIME),--runtime $(RUNTIME))

REV ?=
upgrade: $(STAMP) ## nodes of another revision, the last release without REV=COMMIT, become today's one after the other, while files are written
	$(BIN)/python -m tests.services.mixed_versions $(REV)

bench: $(STAMP) ## the usual benchmarks, beside what bare sockets and disks do in the same run: CASES="write calls" OUTPUT=build/bench.jsonl
	@mkdir -p $(dir $(OUTPUT))
	$(BIN)/paxosblock bench $(CASES) --output $(OUTPUT)

clean: ## remove .venv, caches and build results
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
