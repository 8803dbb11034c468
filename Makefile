# `make test` is everything that CI runs. See README.md.

GO        ?= go
FUZZTIME  ?= 5s
export CGO_ENABLED = 1

.PHONY: build test check race fuzz conformance failover bench clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o lockstep ./cmd/lockstep

test: check race fuzz conformance

check:
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$fmt" ]; then echo "gofmt -w $$fmt"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

race:
	GORACE=halt_on_error=1 $(GO) test -race -timeout 15m ./...

# Every fuzz target for a short while, one after the other.
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

# The suites of foreign clients, against one node and against three.
conformance: build
	conformance/run.sh ./lockstep

# Twenty kills of the leader, then one of all three nodes: docs/failover.md.
failover: build
	conformance/failover.sh ./lockstep 20

# Beside redis-server, in one run: docs/performance.md.
bench: build
	bench/compare.sh ./lockstep

clean:
	rm -rf lockstep lockstep-data conformance/java/*/target conformance/java/target
