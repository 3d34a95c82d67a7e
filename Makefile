# OnceMQ's commands. A thin front: Meson configures, Ninja builds, and each target first sees to its own packages
# (tools/setup.sh). `make help` lists them.

PREFIX ?= /usr/local
SECONDS ?= 60
NINJA := ninja $(if $(MAKE_TERMOUT),,--quiet)

RELEASE := --buildtype=release -Dtests=disabled
CHECKED := -Ddebug=true -Doptimization=1 -Db_sanitize=address,undefined -Dtests=enabled --werror
FUZZING := -Ddebug=true -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
           -Dtests=disabled -Dfuzz=enabled

.DEFAULT_GOAL := help
.PHONY: help run test build bench bench-peers bench-scaling profile fuzz format lint install interop docs clean
.NOTPARALLEL:

help: ## show this list
	@echo "OnceMQ: a message queue that existing RocketMQ clients can use as it is."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

run: build ## build, then run the daemon here with its data in ./data; Ctrl-C stops it
	@exec build/oncemqd --data ./data

build: build/build.ninja ## release binaries in build/
	@$(NINJA) -C build
	@ln -sfn src/daemon/oncemqd build/oncemqd
	@ln -sfn src/cli/oncemq build/oncemq

test: build-test/build.ninja ## build with sanitizers and run every test; TESTS='name …' or SUITE=unit for a few
	@$(NINJA) -C build-test
	@tools/test.sh build-test $(if $(SUITE),--suite $(SUITE)) $(TESTS)

interop: export ENDPOINT := $(ENDPOINT)
interop: ## only the tests with official clients; ENDPOINT=host:port or ENDPOINT=apache runs them on other servers
	@$(MAKE) --no-print-directory test SUITE=interop

bench: build ## measure; every number is a ratio against a baseline of the same run
	@meson test -C build --benchmark --verbose

bench-peers: export ONCEMQD := $(CURDIR)/build/oncemqd
bench-peers: export ONCEMQ := $(CURDIR)/build/oncemq
bench-peers: export BENCH_BARE := $(CURDIR)/build/bench/bench_bare
bench-peers: export BENCH_LIMITS := $(CURDIR)/build/bench/bench_limits
bench-peers: build ## OnceMQ beside Apache RocketMQ and others, into bench/report; ROUNDS=3 PEERS='oncemq apache …' WORK='targets …' QUICK=1 MINUTES=12 RESUME=1
	@cd bench && PYTHONDONTWRITEBYTECODE=1 ROUNDS='$(ROUNDS)' PEERS='$(PEERS)' WORK='$(WORK)' QUICK='$(QUICK)' MINUTES='$(MINUTES)' RESUME='$(RESUME)' python3 -m peers

profile: build ## flame graphs of sends and pulls, bench/report/profile-*.svg; TOOL=callgrind counts instructions instead of sampling time
	@tools/setup.sh profile
	@ONCEMQD=build/oncemqd ONCEMQ=build/oncemq COUNT_BROKER=build/tests/count/count_broker python3 bench/profile.py

bench-scaling: export ONCEMQD := $(CURDIR)/build/oncemqd
bench-scaling: export BENCH_BROKER := $(CURDIR)/build/bench/bench_broker
bench-scaling: build ## what a message costs as topics, queues, groups, connections … grow, into bench/report; GROW='topics …' for a few
	@cd bench && PYTHONDONTWRITEBYTECODE=1 python3 -m scaling $(GROW)

fuzz: build-fuzz/build.ninja ## libFuzzer on each decoder for SECONDS=60; TARGETS='json …' for a few; KEEP=yes grows tests/fuzz/corpus
	@$(NINJA) -C build-fuzz fuzzers
	@tools/fuzz.sh build-fuzz $(SECONDS) "$(KEEP)" $(TARGETS)

format: ## bring all C into the house's form
	@tools/setup.sh lint
	@tools/format.sh

lint: build-test/build.ninja ## everything a script can check: form, clang-tidy, shellcheck, tools/tidy.py
	@tools/setup.sh lint
	@tools/lint.sh build-test

install: build ## install programs, libraries, headers, man pages, completions and a unit for systemd into PREFIX=/usr/local (DESTDIR is honoured)
	@meson configure build --prefix='$(abspath $(PREFIX))'
	@meson install -C build --quiet

docs: build ## write the pages that are made from the source: docs/configuration.md, docs/cli.md, docs/protocol.md, docs/api
	@tools/docs.sh build/oncemqd build/oncemq

clean: ## remove what was built; ./data stays
	@rm -rf build build-test build-fuzz

# Configuring happens once, and again when the options above change. The packages are looked at every time: it takes
# some milliseconds.
build/build.ninja: Makefile meson_options.txt | packages-build
	@meson setup $(if $(wildcard $@),--reconfigure) build $(RELEASE)

build-test/build.ninja: Makefile meson_options.txt | packages-test
	@meson setup $(if $(wildcard $@),--reconfigure) build-test $(CHECKED)

build-fuzz/build.ninja: Makefile meson_options.txt | packages-fuzz
	@CC=clang meson setup $(if $(wildcard $@),--reconfigure) build-fuzz $(FUZZING)

.PHONY: packages-build packages-test packages-fuzz
packages-build:
	@tools/setup.sh build
packages-test:
	@tools/setup.sh build test
packages-fuzz:
	@tools/setup.sh build fuzz
