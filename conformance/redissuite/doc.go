// Package redissuite runs the own test suite of Redis 7.0.15 against one node.
//
// The suite is not part of this repository: `make redis-suite` has apt fetch the source package that belongs to the redis-server of
// Debian 12. It then runs the files named in suite.txt from outside (./runtest --host), each on a new node. Every test must pass,
// except those that suite.txt skips. Each skip has its reason in suite.txt; a skip that names no test of the suite is a fault, too.
// `LOCKSTEP_RECORD=1 make redis-suite` writes the counts to results.txt, from which docs/compatibility.md is generated.
//
//	go test -run 'TestSuite/unit/type/hash' ./conformance/redissuite   # with LOCKSTEP_REDIS_SUITE=all: one file
package redissuite
