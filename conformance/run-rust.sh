#!/usr/bin/env bash
# Runs the Rust clients against the servers in LOCKSTEP_ADDRS (and
# LOCKSTEP_SENTINELS, LOCKSTEP_CLUSTER); see conformance/rust/README.md.
set -euo pipefail
cd "$(dirname "$0")/rust"
: "${LOCKSTEP_ADDRS:?set LOCKSTEP_ADDRS=host:port[,host:port...]}"
log=target/run.log
mkdir -p target
sed -n 'N;s/^name = "\(redis\|rslock\)"\nversion = "\(.*\)"/client \1 \2/p;D' Cargo.lock
# cargo runs the test programs one after the other, so that the failover
# has the servers for itself. One fails: the others run all the same.
status=0
# LOCKSTEP_TESTS names the tests to run, if not all.
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then exec cargo test --quiet --locked --test locks "$LOCKSTEP_TESTS"; fi
cargo test --quiet --locked --no-fail-fast >"$log" 2>&1 || status=1
if [[ $status -ne 0 ]]; then cat "$log"; fi
grep '^test result' "$log"
exit $status
