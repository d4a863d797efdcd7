# Every chore lives in xtask (`cargo xtask`); these names only install what is
# missing first, so that they work from a clean checkout.
SETUP := sh xtask/setup.sh

.PHONY: help run build test test-vm vm-deps bench guide install-deps

help:
	@echo 'make run            install what is missing, build, and show the main job on real input'
	@echo 'make test           what CI runs'
	@echo 'make test-vm        tests on real kernels in emulated machines of several nodes'
	@echo 'make bench          every benchmark beside its peer; one: cargo xtask bench NAME'
	@echo 'make guide          write the outputs in README.md and docs/guide anew'
	@echo 'make build          build the homenode command into target/release'
	@echo 'make install-deps   only install what is missing'
	@echo 'make vm-deps        the same for test-vm'

run:
	@$(SETUP) run cargo xtask demo

build:
	@$(SETUP) run cargo xtask build

# The profile is CI's own, so that xtask shares its dependencies with the tests.
test:
	@$(SETUP) all cargo run --locked --quiet --profile ci --package xtask -- ci

# Kernels of Debian are downloaded once; `cargo xtask vm` has the parts of it.
test-vm:
	@$(SETUP) vm cargo run --locked --quiet --profile ci --package xtask -- vm test

bench:
	@$(SETUP) all cargo xtask bench

guide:
	@$(SETUP) run cargo run --locked --quiet --profile ci --package xtask -- guide

install-deps:
	@$(SETUP) all

vm-deps:
	@$(SETUP) vm
