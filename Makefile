# The one entry point: `make help` lists what there is. Every target sets up what it needs by itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON := .venv/bin/python
SEED ?=
CHAOS ?=
QUICK ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
CLUSTER ?= millrace
WORKERS ?= 0

.PHONY: help setup demo test plane cluster install cluster-delete e2e images lint format generate docs locks picture picture-watermarks bench-engine bench-channel bench-collector bench-operator clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | expand -t 20

setup: ## virtual environment with PySpark, Java, jars; quick when nothing is to do
	@scripts/setup

demo: setup ## a year of flights through a real broker and Spark, compared with pandas (CHAOS=1: with SIGKILLs; SEED=n)
	@CHAOS=$(CHAOS) SEED=$(SEED) $(PYTHON) examples/flights/demo.py

test: setup ## all tests, on a real broker (PYTEST_ARGS=... to choose)
	@$(PYTHON) -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

plane: setup ## the programs of a Kubernetes control plane for tests: fetched, or built with Go (once, minutes)
	@PYTHONPATH=tests $(PYTHON) -m cluster plane

cluster: setup ## a kind cluster with Kafka in it, kept if it is there (CLUSTER=name, WORKERS=n nodes beside the first)
	@PYTHONPATH=tests $(PYTHON) -m cluster --name $(CLUSTER) up --workers $(WORKERS)

install: setup ## Millrace into that cluster: its images, and both charts by Helm
	@PYTHONPATH=tests $(PYTHON) -m cluster --name $(CLUSTER) install

cluster-delete: setup ## remove that cluster, or what is left of it
	@PYTHONPATH=tests $(PYTHON) -m cluster --name $(CLUSTER) down

e2e: plane cluster ## the tests on a control plane and on that cluster; none of them is skipped
	@MILLRACE_REQUIRE_CLUSTER=1 CLUSTER=$(CLUSTER) $(PYTHON) -m pytest -m cluster -n 2 --dist loadgroup $(PYTEST_ARGS)

images: setup ## the container images of Millrace, as millrace/<name>:dev (images/README.md)
	@PYTHONPATH=tests $(PYTHON) -m cluster images

lint: setup ## style, types, layers, generated files
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format: setup ## rewrite the sources in the house style
	@.venv/bin/ruff check --fix -q . ; .venv/bin/ruff format -q .

generate: setup ## the CRD, the editors' schema and docs/manifest.md from the models; what is generated in charts/
	@$(PYTHON) -m millrace_api.crd crds/millrace.dev_consumerpipelines.yaml
	@$(PYTHON) -m millrace_api.editor crds/consumerpipeline.schema.json
	@$(PYTHON) -m millrace_api.reference docs/manifest.md
	@$(PYTHON) scripts/chart_files.py

docs: generate ## the generated pages anew; then every manifest, snippet, command and link of the documents is tried
	@$(PYTHON) -m pytest -q tests/unit/project/test_docs.py

locks: setup ## images/requirements, the pinned packages of the images, anew from pyproject.toml
	@scripts/lock-images

picture: setup ## docs/live-view.svg, from a run of the flights
	@PICTURE=docs/live-view.svg $(PYTHON) examples/flights/demo.py

picture-watermarks: setup ## docs/watermarks.svg, how marks and watermarks move
	@$(PYTHON) scripts/picture_watermarks.py docs/watermarks.svg

bench-engine: setup ## client CPU per message beside bare client and peers, to build/bench/engine.json (QUICK=1; BENCH_ARGS="--case functions --no-peers")
	@QUICK=$(QUICK) $(PYTHON) benchmarks/engine.py $(BENCH_ARGS)

bench-channel: setup ## CPU to check and encode a row of a channel, to build/bench/channel.json
	@QUICK=$(QUICK) $(PYTHON) benchmarks/channel.py

bench-collector: setup ## CPU, memory and time of the collector beside a hand-written Spark job (QUICK=1: one small case)
	@QUICK=$(QUICK) $(PYTHON) benchmarks/collector.py

bench-operator: plane ## time, API writes and memory of the operator with thousands of pipelines (QUICK=1: a tenth)
	@QUICK=$(QUICK) PYTHONPATH=tests $(PYTHON) benchmarks/operator_scale.py

clean: ## remove what was built; the virtual environment and caches stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
