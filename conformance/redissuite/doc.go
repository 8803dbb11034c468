// Package redissuite runs the own test suite of Redis 7.0.15 against one node.
//
// The suite is not part of this repository: `make redis-suite` has apt fetch the source package that belongs to the
// redis-server of Debian 12, and runs the files named in suite.txt from outside (./runtest --host), each on a node of its
// own. Every test must pass that suite.txt does not skip; each skip has its reason there, and a skip that names no
// test of the suite is a fault, too. `LOCKSTEP_RECORD=1 make redis-suite` writes what was counted to results.txt,
// of which docs/compatibility.md is made.
//
//	go test -run 'TestSuite/unit/type/hash' ./conformance/redissuite   # with LOCKSTEP_REDIS_SUITE=all: one file
package redissuite
