# What people type.  CMake does the work (CMakePresets.json); `make help` lists the targets.
PREFIX ?= /usr/local
JOBS ?= 2
TESTS ?= 4
SCALE ?= 1000
FUZZ_SECONDS ?= 300
TIMES ?= 1
SEEDS ?= 1000
STORES ?= memory,sqlite,postgres
POINTS ?= 5000
FROM ?= 0
EVERY ?= 1
MINUTES ?= 10
KIND ?= armhf

# $(call build,PRESET,more options): configure, files may be new, and build.
build = cmake --preset $(1) $(2) >/dev/null && cmake --build --preset $(1) -j $(JOBS)
# Tests wait for more than they compute: twice as many at a time as there are cores.
run = tools/run-tests -j $(TESTS)
# RECORD=1: what a long target has tried is added to docs/evidence.tsv, cut off or not; continue with FROM=.
recorded = $(if $(RECORD),tools/evidence --run $@ --from $(FROM))

.NOTPARALLEL:
.PHONY: all help demo test check parity cross-replay crash crash-disk oom chaos soak sim bench mutants mutants-engine mutants-sim mutants-stores fuzz musl ground size install amalgamation dist deb package-test format lint clean

all: ## the libraries, tools and examples, into build/
	@tools/deps build
	@$(call build,release,$(if $(wildcard build/CMakeCache.txt),,-DDURITE_TESTS=OFF))

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: all ## an order service that is killed half-way and goes on
	@rm -rf build/demo && mkdir -p build/demo
	@build/bin/order-demo --db build/demo/orders.db --demo

test: ## every test, full size, under 8 minutes
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@$(run) build

check: ## the tests under sanitizers, scaled down, and lint
	@tools/deps build test lint
	@$(call build,asan)
	@DURITE_TEST_SCALE=$${DURITE_TEST_SCALE:-10} DURITE_TEST_SLOWER=4 $(run) build-asan
	@$(call build,tsan)
	@DURITE_TEST_SCALE=$${DURITE_TEST_SCALE:-10} DURITE_TEST_SLOWER=6 $(run) --threads build-tsan
	@$(MAKE) --no-print-directory lint

parity: ## docs/parity.md against the exported symbols and the last make test
	@tools/check-parity build

cross-replay: ## histories of the gcc builds in the clang builds and the reverse, at -O0 and -O2
	@tools/deps build test lint
	@tools/cross-replay

crash: ## kill -9 at 1,000 random moments, one process and two, on SQLite; nodes on PostgreSQL; SCALE= percent
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@DURITE_TEST_SCALE=$(SCALE) DURITE_TEST_SLOWER=30 $(recorded) build/tests/crash_kill
	@DURITE_TEST_SCALE=$(SCALE) DURITE_TEST_SLOWER=30 $(recorded) sh -c '$(run) --only crash_nodes build; status=$$?; \
		grep "^# " build/test-logs/only/crash_nodes/crash_nodes.out; exit $$status'

crash-disk: ## SQLite on a disk that loses power, is full or fails: POINTS= of each kind, beginning with FROM=
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@$(recorded) build/tests/crash_disk --jobs $(JOBS) --points $(POINTS) --from $(FROM)

oom: ## every allocation of every script fails, once and for good; EVERY= takes one of so many
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@$(recorded) build/tests/oom --every $(EVERY)

chaos: ## PostgreSQL servers killed, replaced, filled up, cut off under nodes and clients, for MINUTES=; SEED= repeats choices
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@$(recorded) tools/chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) build

soak: ## properties, faults, dangers and end-to-end at SCALE= percent, then the unit tests under valgrind; TIMES=0 on a busy machine
	@tools/deps build test valgrind
	@$(call build,release,-DDURITE_TESTS=ON)
	@SCALE=$(SCALE) JOBS=$(JOBS) TIMES=$(TIMES) $(recorded) tools/soak build

bench: all ## throughput and latency, as ratios to a limit probe
	@build/bin/durite-bench

sim: ## nodes, clients and faults under SEEDS= seeds from FROM= on, one thing at a time; STORES=memory,sqlite,postgres
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@$(recorded) tools/sim -j $(JOBS) build $(STORES) --from $(FROM) --seeds $(SEEDS) --keep-going

mutants: ## deliberately broken stores: the kit must catch each
	@tools/deps build test
	@$(call build,release,-DDURITE_TESTS=ON)
	@$(recorded) build/bin/durite-mutants

mutants-engine: ## deliberately broken engines: the tests must catch each
	@tools/deps build test
	@$(recorded) tools/mutants-engine

mutants-sim: ## bugs planted in stores and engine: the simulator must find each
	@tools/deps build test
	@$(recorded) tools/mutants-engine --list tests/mutants/sim.txt

mutants-stores: ## the memory store with one mistake at a time: the kit must catch each
	@tools/deps build test
	@tools/mutants-stores

fuzz: ## libFuzzer on everything that parses, FUZZ_SECONDS= each
	@tools/deps build test fuzz
	@$(call build,fuzz) --target fuzz_targets
	@$(recorded) tools/run-fuzz build-fuzz $(FUZZ_SECONDS)

musl: KIND = musl
musl: ground ## build with musl instead of glibc, and run the unit and e2e tests there

ground: ## the same on KIND=armhf (32 bits), aarch64 or aarch64-clang under qemu-user, musl, or plain (docs/porting.md)
	@tools/ground -j $(JOBS) --tests $(TESTS) $(KIND)

size: ## bytes of libdurite.so at -O2 and -Os, stripped, and of each folder
	@tools/deps build
	@$(call build,release) --target durite
	@$(call build,small) --target durite
	@tools/size build build-small

install: all ## into PREFIX= (default /usr/local); DESTDIR= is honoured
	@cmake --install build --prefix $(PREFIX)

amalgamation: ## the library as one .c and one .h, into build/amalgamation/
	@tools/amalgamation build/amalgamation
	@echo "build/amalgamation/durite.c and build/amalgamation/durite/durite.h: cc -Ibuild/amalgamation PROGRAM.c build/amalgamation/durite.c -lsqlite3 -pthread -ldl -lm"

dist: ## source archive, the library as one file, and a wrap for Meson, into build/dist/: the same bytes each time
	@tools/dist build/dist
	@ls build/dist

deb: ## Debian packages, into build/deb/
	@tools/deps build deb
	@tools/deb build/deb

package-test: ## the packages in a clean Debian, with the README's commands as printed; needs root and a mirror
	@tools/deps build deb package-test
	@tools/package-test

format: ## rewrite what clang-format would write otherwise
	@tools/deps format
	@git ls-files '*.c' '*.h' '*.cpp' | xargs clang-format -i

lint: ## clang-tidy, cppcheck, include law, exported symbols, determinism
	@tools/deps build test lint
	@$(call build,release,-DDURITE_TESTS=ON)
	@tools/lint build

clean: ## remove everything that was built
	@rm -rf build build-dev build-asan build-tsan build-clang build-cross build-fuzz build-mutants \
		build-small build-plain build-musl build-aarch64 build-aarch64-clang build-armhf build-sources
