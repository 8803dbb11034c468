# `make test` is everything that CI runs, but for .ci/vulnerabilities, which needs
# the Go proxy. See README.md.

GO       ?= go
# So many inputs, not so many seconds: under load go test -fuzz reports its own
# deadline as a failure.
FUZZTIME ?= 15000x

# How many seeds `make simulation` plays, and from which on.
SEEDS    ?= 100000
FROM     ?= 1

.PHONY: build simulation mutations test check lint race seeds fuzz conformance redis-suite compatibility kills chaos hostile growth differential image compose bench microbench performance lockloss broken rotations hosts licenses vulnerabilities packages release clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o lockstep ./cmd/lockstep
	CGO_ENABLED=0 $(GO) -C bench build -trimpath -o ../lockstep-bench ./lockstep-bench

# What a release has, in ./release: archives for Linux and macOS, packages, the list of modules, checksums.
release:
	deploy/packages/release release

# The Debian and RPM packages for this machine, in ./release.
packages:
	mkdir -p release && deploy/packages/build release

test: lint race seeds fuzz conformance

# Before each commit: two to three minutes on two processors. The tests of the packages, without those that take seconds each.
check: lint
	$(GO) test -vet=off -short ./store/... ./raftfsm ./luavm/... ./server/... ./cluster/...

lint:
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$fmt" ]; then echo "run: gofmt -w" $$fmt; exit 1; fi
	$(GO) vet ./...
	CGO_ENABLED=0 GOOS=darwin $(GO) vet ./...
	cd conformance/go && $(GO) vet ./...
	cd conformance/ui && $(GO) vet ./...
	cd conformance/helm && $(GO) vet ./...
	$(GO) -C bench vet ./...
	CGO_ENABLED=0 GOOS=darwin $(GO) -C bench vet ./...
	$(GO) tool staticcheck ./...
	cd bench && "$$($(GO) -C .. tool -n staticcheck)" ./...

# The race detector needs a C compiler. `lint` has vetted everything, tests too.
race:
	@if command -v $${CC:-gcc} >/dev/null; then \
	  CGO_ENABLED=1 GORACE=halt_on_error=1 $(GO) test -vet=off -race -timeout 15m ./... && \
	  CGO_ENABLED=1 GORACE=halt_on_error=1 $(GO) -C bench test -vet=off -race -timeout 15m ./...; \
	elif [ "$$CI" = true ]; then echo "gcc is not installed: CI runs the race detector"; exit 1; \
	else echo "gcc is not installed: skipping the race detector"; $(GO) test -timeout 15m ./... && $(GO) -C bench test -timeout 15m ./...; fi

# The simulation once more without the race detector, with which only a few seeds are played.
seeds:
	$(GO) test -vet=off -count=1 -timeout 10m -run '^TestSimulation' ./cluster

# Every fuzz target for a short while, one after the other, and the counts at the end:
# `make fuzz FUZZTIME=1h` for long, FUZZ=FuzzHTTP one of them, FUZZFLAGS=-parallel=1 on one core.
fuzz:
	@GO="$(GO)" FUZZTIME="$(FUZZTIME)" FUZZ="$(FUZZ)" FUZZFLAGS="$(FUZZFLAGS)" .ci/fuzz

# The suites of foreign clients, against one node and against three; at the end the dashboard in Chromium.
conformance:
	LOCKSTEP_CLIENTS=1 $(GO) test -count=1 -timeout 20m -v ./conformance/clients
	LOCKSTEP_CLIENTS=1 $(GO) test -count=1 -timeout 20m -v ./conformance/unixsocket
	LOCKSTEP_CLIENTS=1 $(GO) test -count=1 -timeout 10m -v ./conformance/bridge
	LOCKSTEP_COMPOSE=try $(GO) test -count=1 -timeout 10m -v ./conformance/compose
	$(GO) -C conformance/ui test -count=1 -timeout 20m -v .
	$(GO) -C conformance/helm test -count=1 -timeout 10m .

# The same, and docs/compatibility.md is written from what they report.
compatibility:
	LOCKSTEP_RECORD=1 $(MAKE) conformance
	$(GO) run ./conformance/compatibility/generate

# Redis's own test suite, which apt fetches the source of; it takes about fifteen
# minutes. With LOCKSTEP_RECORD=1 its results are kept for docs/compatibility.md.
# Where the source is there already, make test runs its quick files.
redis-suite:
	LOCKSTEP_REDIS_SUITE=all $(GO) test -count=1 -timeout 1h -v ./conformance/redissuite

# What is linked in, under which licences: docs/licenses.md.
licenses:
	$(GO) run ./conformance/dependencies/generate

# What is linked in, beside the Go vulnerability database.
vulnerabilities:
	GO=$(GO) .ci/vulnerabilities

# So many kills of the leader under load, and a tenth as many planned transfers
# and clean stops; make test does three kills, and two transfers and stops. Then so long
# of kills while clients of every kind take one lock; make test does two kills.
KILLS ?= 1000
EXCLUSION ?= 10m
kills:
	LOCKSTEP_KILLS=$(KILLS) LOCKSTEP_TRANSFERS=$$(($(KILLS) / 10)) LOCKSTEP_WAITERS=1000 LOCKSTEP_QUEUE_KILLS=20 LOCKSTEP_DEADLOCKS_FOR=10m $(GO) test -count=1 -timeout 3h -v ./conformance/kills
	LOCKSTEP_CLIENTS=1 LOCKSTEP_EXCLUSION=$(EXCLUSION) $(GO) test -count=1 -timeout 0 -v -run '^TestOneNameEveryClient$$' ./conformance/clients

# Real nodes while everything is broken that can be; what every client saw is
# checked. Needs root. make test does half a minute of it.
CHAOS ?= 60m
chaos:
	$(GO) run ./conformance/chaos -for $(CHAOS) $(if $(SEED),-seed $(SEED))

# Attacks on three nodes and on one, in turn, while innocent clients lock; make test
# does half a minute of it. SEED=… repeats a run, ATTACK="few rights" plays one kind.
HOSTILE ?= 2h
hostile:
	LOCKSTEP_HOSTILE=$(HOSTILE) LOCKSTEP_SEED=$(SEED) LOCKSTEP_ATTACK="$(ATTACK)" $(GO) test -count=1 -timeout 0 -v -run '^TestHostile$$' ./conformance/hostile

# Every way to grow, each by one client for so long, on one node and on three with
# 256 MiB of memory each. Needs root and cgroups. make test does a third of a second of each.
GROWTH ?= 10m
growth:
	LOCKSTEP_GROWTH=$(GROWTH) $(GO) test -count=1 -timeout 0 -v ./conformance/hostile/growth

# A million random commands on lockstep and on redis-server; make test plays
# twenty thousand.
differential: build
	@./lockstep --ephemeral --listen 127.0.0.1:16379 --http-listen '' & trap "kill $$!" EXIT; sleep 1; \
	$(GO) run ./conformance/differential -lockstep 127.0.0.1:16379 -commands 1000000

# Seeds of the simulation on two cores; make test plays three thousand.
simulation:
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; $(GO) test -c -o "$$dir/cluster.test" ./cluster; cd cluster; \
	half=$$((($(SEEDS)+1)/2)); pids=; trap 'kill $$pids' TERM INT; for i in 0 1; do \
	  GOMAXPROCS=1 LOCKSTEP_FROM=$$(($(FROM)+i)) LOCKSTEP_STEP=2 LOCKSTEP_SEEDS=$$half \
	  "$$dir/cluster.test" -test.run '^TestSimulation$$' -test.v -test.timeout 0 & pids="$$pids $$!"; \
	done; bad=0; for p in $$pids; do wait $$p || bad=1; done; exit $$bad

# Deliberate bugs that the simulation has to find.
mutations:
	LOCKSTEP_MUTATIONS=1 $(GO) test -count=1 -timeout 30m -v -run TestMutations ./cluster

# The container image out of a binary that is built here: it needs Docker, and
# pulls nothing. `docker build -t lockstep .` builds it in a Go image instead.
IMAGE ?= lockstep
image: build
	@set -e; dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; mkdir $$dir/data $$dir/secret; cp lockstep $$dir; \
	sed -n '/^FROM scratch/,$$p' Dockerfile | sed 's/--from=build //' | docker build -t $(IMAGE) -f - $$dir

# docker-compose.yml under a real Docker engine: networks cut, containers
# killed. make test does half of it, where it can; this fails where it cannot.
compose:
	LOCKSTEP_COMPOSE=must $(GO) test -count=1 -timeout 10m -v ./conformance/compose

# From plain to TLS by restarts, then so many new secrets, and so many new certificates
# and authorities of peers, and of clients and their ports, with clients at work; make
# test does one.
ROTATIONS ?= 50
rotations:
	LOCKSTEP_ROTATIONS=$(ROTATIONS) $(GO) test -count=1 -timeout 1h -v -run 'FromPlainToTLS|CertificatesUnderLoad' ./cmd/lockstep

# So many rounds in which two hosts run one job under `lockstep lock` at the same time, each host and
# each node in a network of its own, while links, nodes and processes fail. Needs root; make
# test plays some rounds without networks.
HOSTS ?= 1000
hosts:
	LOCKSTEP_HOSTS=$(HOSTS) $(GO) test -count=1 -timeout 0 -v -run '^TestHostsInTwoNetworks$$' ./cmd/lockstep

# Every program that is broken on purpose must fail the test that is named for it;
# make test runs two of them, and checks that all mutations still fit the program.
broken:
	$(GO) run ./conformance/broken

# lockstep beside Redis, Redlock, etcd and ZooKeeper, if they are installed, in one
# run: ./lockstep bench --help says what can be measured.
BENCH ?=
bench: build
	./lockstep bench $(BENCH)

# What the hot path costs without sockets, beside what it cost in another commit: the two
# take turns, and benchstat says which differences are none.
BASE ?= HEAD~1
MICRO ?= Unlock|Submit
BENCHSTAT = golang.org/x/perf/cmd/benchstat@v0.0.0-20250813145418-2f7363a06fe1
microbench:
	tmp=$$(mktemp -d) && trap 'git worktree remove --force '$$tmp'/base; rm -r '$$tmp EXIT && \
	git worktree add --quiet --detach $$tmp/base $(BASE) && \
	for round in 1 2 3 4 5 6; do \
		$(GO) -C $$tmp/base test -run '^$$' -bench '$(MICRO)' -benchmem ./luavm ./cluster >> $$tmp/before.txt && \
		$(GO) test -run '^$$' -bench '$(MICRO)' -benchmem ./luavm ./cluster >> $$tmp/after.txt || exit 1; \
	done && $(GO) run $(BENCHSTAT) $$tmp/before.txt $$tmp/after.txt

# The figures of docs/performance.md: what is promised, on the disk and on a RAM
# disk, and how it grows with the number of clients and with the size of the values.
# About thirty-five minutes, on a machine that has nothing else to do; a promise that
# does not hold is in the table.
CLIENTS = --workloads cycle --clients 1,10,50,200,1000 --peers redis,redis-always,redlock,etcd,zookeeper,lockstep-1,lockstep-3,lockstep-5
SIZES   = --workloads cycle --token 16,1024,16384 --peers redis-always,etcd,lockstep-1,lockstep-3
performance: build
	-./lockstep bench --check --markdown docs/performance.md#durable
	-./lockstep bench --check --dir /dev/shm --markdown docs/performance.md#memory
	./lockstep bench $(SIZES) --markdown docs/performance.md#sizes
	./lockstep bench $(CLIENTS) --svg docs/performance.svg --markdown docs/performance.md#growth

# The locks that Redis loses, and those that lockstep does not: docs/lock-loss.md.
LOCKLOSS ?=
lockloss: build
	$(GO) -C bench run ./lockloss -lockstep ../lockstep $(LOCKLOSS)

# It does not touch lockstep-data, where a node keeps its durable data.
clean:
	rm -rf lockstep lockstep-bench release conformance/java/target conformance/java/*/target
