// Package redissuite runs Redis 7.0.15's own test suite against one node.
//
// The suite is not part of this repository: `make redis-suite` makes apt fetch the source package of Debian 12's redis-server. It
// then runs the files named in suite.txt against a server that the suite does not start itself (./runtest --host), each file on a
// new node. Every test must pass, except those that suite.txt skips. Each skip has its reason in suite.txt. A skip that names no
// test of the suite is a fault, too. `LOCKSTEP_RECORD=1 make redis-suite` writes the counts to results.txt, from which
// docs/compatibility.md is generated.
//
//	go test -run 'TestSuite/unit/type/hash' ./conformance/redissuite   # with LOCKSTEP_REDIS_SUITE=all: one file
package redissuite
