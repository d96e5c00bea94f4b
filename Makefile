# Index of all chores. A chore with an `if` in it is a `cargo xtask`.
CARGO  ?= cargo
FOREBAY = target/release/forebay
PREFIX ?= /usr/local

.PHONY: help demo fmt test test-programs evaluate chaos bench bench-datapath bench-bundles bench-instructions bench-kernel bench-ns3 \
        bench-python bench-routing fuzz build image install packages bpf-algorithms test-packages test-beside check lint clippy rustdoc deny soak package rpm small static \
        reproducible test-gateway test-learning test-image test-package test-fresh test-kernels test-metrics test-own test-probe test-python test-quickstart test-recording test-rpm test-small \
        python-libraries wheel docs clean

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: build ## runs a bundle and its baselines on real kernel TCP; writes a table and report.html (root)
	$(FOREBAY) demo

# A virtual environment with the libraries in the file $(1). Modules are not compiled: few are imported, and compiling
# would take longer than installing.
define venv
python3 -m venv target/python
target/python/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement $(1)
endef

# The package in such an environment.
define python
$(call venv,$(1))
$(call module,$(2))
endef

# The package in the existing environment, built by maturin: for debugging, or as $(1) says.
define module
VIRTUAL_ENV="$(CURDIR)/target/python" PIP_QUIET=1 target/python/bin/maturin develop --quiet $(1)
endef

test: test-packages ## runs all tests except slow Python ones, and lists skipped ones; as root also tests on real traffic
	@# Downloads libraries while compilers work.
	@$(MAKE) --no-print-directory --jobs=2 test-programs python-libraries
	@# The xtask that is built with the tests: cargo xtask would build its dependencies a second time, with
	@# fewer features.
	target/debug/xtask test --beside "$(MAKE) --no-print-directory test-beside"

test-programs:
	$(CARGO) test --workspace --locked --no-run

# Needs processors but no traffic: runs in the time that traffic tests leave idle.
test-beside: clippy rustdoc
	$(call module)
	target/python/bin/python -m pytest --quiet -r s --no-fold-skipped

python-libraries: test-packages
	$(call venv,python/requirements.txt)

evaluate: build ## runs plans and platforms, and judges every claim (root, hours: cargo xtask evaluate --list; resumes)
	$(CARGO) xtask evaluate

chaos: build ## runs 200 sequences of faults, each with a twin without boxes (root, 3 hours, resumes)
	$(FOREBAY) chaos --backend sim --seeds 1..160; simulated=$$?; \
	$(FOREBAY) chaos --backend emu --seeds 161..200 && exit $$simulated

bench: ## runs micro-benchmarks: ns per measurement, per enqueue and dequeue, packets per second
	$(CARGO) bench --workspace --locked

bench-bundles: packages ## compares 1,000 bundles with one for the same traffic: CPU, memory, shares, reload (root, idle machine, a minute; DATAPATH=kernel)
	$(CARGO) test --locked --release -p forebay-experiments --test boxes thousand_bundles -- --ignored --nocapture

bench-datapath: packages ## compares a sendbox with a bare AF_XDP forwarder and a bridge: packets per second, CPU, latency (root, 5 minutes)
	$(CARGO) bench --locked -p forebay-experiments --bench datapath

bench-kernel: packages ## compares datapath = "kernel" with a plain bridge: throughput, delays of short messages; nine turns each (root, 7 minutes)
	$(CARGO) test --release --locked -p forebay-experiments --test boxes -- --ignored --nocapture kernel_throughput

bench-routing: packages ## compares datapath = "kernel" without a limit with plain routing, on a machine that routes (root, 5 minutes)
	$(CARGO) bench --locked -p forebay-experiments --bench routing

bench-ns3: ## compares CPU times of the simulator and ns-3 (libns3-dev, 40 minutes)
	$(CARGO) xtask bench-ns3

fuzz: $(FOREBAY) ## fuzzes every target for ten minutes, and each file format that a command reads for two
	cd fuzz && $(CARGO) run --profile fuzz --locked -- all --seconds 600
	cd fuzz && $(CARGO) run --profile fuzz --locked -- readers ../$(FOREBAY) --seconds 120

build: packages ## builds both programs as release builds
	$(CARGO) build --release --locked

# Phony: cargo decides whether the binary is up to date.
.PHONY: $(FOREBAY)
$(FOREBAY):
	$(CARGO) build --release --locked

install: $(FOREBAY) ## installs both programs, manual pages, completions, units and account (PREFIX=/usr/local, DESTDIR=)
	@sh packaging/install.sh $(FOREBAY) "$(PREFIX)" "$(DESTDIR)" $(FOREBAY)-experiments

# Chores for packages only: for all of xtask, cargo would build the program a second time, in debug.
packager = $(CARGO) run --quiet --locked --package forebay-package --

package: packages ## builds two .debs of this commit in target/package: the boxes, and the experiments
	@sh packaging/install-packages.sh packaging/package.txt
	$(packager) package

static: packages ## builds an archive of both programs, without shared libraries, in target/package
	$(packager) package --static

rpm: packages ## builds a .rpm of the boxes of this commit in target/package, for Fedora and similar: a program without shared libraries
	@sh packaging/install-packages.sh packaging/rpm.txt
	$(packager) package --rpm

image: packages ## builds an OCI image of the boxes of this commit with Debian 12, in target/package (root)
	@sh packaging/install-packages.sh packaging/image.txt
	$(packager) package --image

small: ## builds the receivebox for small routers: static programs for arm64 and x86-64 in target/package, below 4 MB each
	$(packager) small

test-small: packages small ## tests the small x86-64 receivebox at 50 Mbit/s: boundaries, memory, CPU time compared with the BPF program's (root, a minute)
	FOREBAY_SMALL=$(CURDIR)/target/package/forebay-receivebox-x86_64 \
	$(CARGO) test --locked -p forebay-experiments --test boxes small_receivebox -- --include-ignored --nocapture

reproducible: packages ## builds each .deb twice from clean clones, and fails if a byte differs (two release builds)
	@sh packaging/install-packages.sh packaging/package.txt
	$(packager) reproducible

packages: ## installs missing Debian packages of packages.txt (root)
	@sh packaging/install-packages.sh packages.txt

test-packages: packages ## installs also the packages that only tests need (root)
	@sh packaging/install-packages.sh packaging/test.txt

check: lint ## runs the checks that every commit must pass, at most three minutes: no root, no traffic
	$(CARGO) test --locked -p forebay-core -p forebay-policy -p forebay-sim -p forebay-lab -p forebay-studies -p xtask --lib --bins --test house

lint: clippy rustdoc ## checks formatting, lints, and links of the documentation

# `cargo fmt` misses modules that a macro declares: registries of algorithms, qdiscs and datapaths.
RUSTFMT = find crates fuzz xtask -name '*.rs' -not -path '*/templates/*' -not -path '*/target/*' -print0 | xargs -0 rustfmt --edition 2024

fmt: ## formats all Rust
	$(RUSTFMT)

clippy:
	$(RUSTFMT) --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@# As `make small` builds it: without BPF programs.
	$(CARGO) clippy --package forebay-receivebox --locked -- -D warnings

rustdoc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

docs: ## builds the pages of docs/ as a site in target/site, and checks its links (mdBook, minutes at the first call)
	$(CARGO) xtask docs

bpf-algorithms: ## rebuilds the BPF objects of algorithms after a change of one (LLVM's tools of the toolchain, clang)
	rustup component add llvm-tools
	$(CARGO) xtask bpf-algorithms

deny: ## checks licences, duplicates, origins and known vulnerabilities of all dependencies (cargo-deny)
	$(CARGO) xtask deny

test-fresh: ## proves in a bare Debian 12 root that the lists of packages are complete (root, debootstrap)
	$(CARGO) xtask test-fresh

soak: packages ## runs an hour at 96 Mbit/s with flaps, reloads and key changes: memory, rates, delays, log; ten minutes with 30 ms of lateness (root; SOAK_MINUTES=60)
	$(CARGO) test --release --locked -p forebay-experiments --test boxes soak -- --ignored --nocapture

test-recording: packages ## records a changing path on the testbed, replays it in the simulator and compares (root, idle machine, 8 minutes; RECORDINGS=5)
	$(CARGO) test --release --locked -p forebay-experiments --test recording -- --ignored --nocapture

test-own: ## tests own algorithms in Rust and C: written, built into forebay and benchmarked (minutes)
	$(CARGO) test --locked -p forebay-experiments --test own -- --include-ignored

test-python: test-packages ## runs every test of the Python package, including S3, notebooks and training (minutes)
	$(call python,python/requirements-all.txt)
	target/python/bin/python -m pytest --quiet --slow -r s --no-fold-skipped

test-learning: test-packages ## tests the environments with checkers and learners of Stable-Baselines3 and RLlib (6 GB, minutes)
	$(call python,python/requirements-learning.txt)
	target/python/bin/python -m pytest --quiet --slow -r s --no-fold-skipped python/tests/test_rl_libraries.py

bench-instructions: packages ## counts the simulator's instructions per packet; fails if they are more than 5 % above the record (2 minutes)
	@sh packaging/install-packages.sh packaging/bench.txt
	$(CARGO) xtask instructions

bench-python: packages ## benchmarks the Python package: environments, a policy against onnxruntime, classes against Rust, sweeps (idle machine, 15 minutes)
	$(call python,python/requirements-all.txt,--profile wheel)
	target/python/bin/python python/benches/learning.py
	target/python/bin/python python/benches/algorithms.py
	target/python/bin/python python/benches/sweeps.py

wheel: packages ## builds the Python package as a wheel for 3.11 and later in target/wheels; prints its size and import time
	@sh packaging/install-packages.sh packaging/wheel.txt
	$(call venv,python/requirements.txt)
	rm -f target/wheels/forebay-*.whl
	target/python/bin/maturin build --profile wheel --strip --quiet --out target/wheels
	advzip --recompress --shrink-insane --quiet target/wheels/forebay-*.whl
	target/python/bin/python python/benches/package.py target/wheels/forebay-*.whl

test-kernels: packages ## runs the BPF programs and the .deb on Debian's Linux 6.1 and 6.12 in qemu (root, an hour)
	@sh packaging/install-packages.sh packaging/package.txt
	@sh packaging/install-packages.sh packaging/test-kernels.txt
	$(CARGO) xtask test-kernels

test-package: packages ## tests the .deb in Debian 12: lintian, install, upgrade, rollback under traffic, purge (root, 15 minutes)
	@sh packaging/install-packages.sh packaging/package.txt
	@sh packaging/install-packages.sh packaging/test-kernels.txt
	@sh packaging/install-packages.sh packaging/test-package.txt
	$(CARGO) xtask test-package --kernel here

test-image: image ## runs both boxes in containers of the image with podman (root, minutes)
	sh packaging/image/try.sh "$$(ls -t target/package/forebay-*.oci.tar | head -n 1)"

test-rpm: rpm ## tests the .rpm in an empty root: install, upgrade, removal (root, minutes)
	sh packaging/rpm/try.sh "$$(ls -t target/package/forebay-*.rpm | head -n 1)"

test-metrics: packages ## scrapes two boxes with Prometheus, and evaluates every rule and query of the dashboard (root, a minute)
	@sh packaging/install-packages.sh packaging/test-metrics.txt
	$(CARGO) test --locked -p forebay-experiments --test boxes prometheus -- --ignored --nocapture

test-gateway: test-packages ## tests sendboxes that route: a gateway with one NIC, WireGuard, hosts as their own boxes, the triangle (root, five minutes)
	$(CARGO) test --locked -p forebay-experiments --test gateway -- --ignored --nocapture --test-threads=1

test-probe: packages ## runs `forebay probe` on 24 emulated paths, and checks the predicted gains (root, ten minutes)
	$(CARGO) test --locked -p forebay-experiments --test probe -- --ignored --nocapture

test-quickstart: packages ## follows docs/operate/quickstart.md in network namespaces, command by command (root, two minutes)
	@sh packaging/install-packages.sh packaging/test-quickstart.txt
	$(CARGO) test --locked -p forebay-experiments --test boxes quickstart -- --ignored --nocapture

clean: ## removes all build results
	$(CARGO) clean
