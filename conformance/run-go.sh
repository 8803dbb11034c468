#!/usr/bin/env bash
# Runs the Go clients against the servers in LOCKSTEP_ADDRS (and
# LOCKSTEP_SENTINELS, LOCKSTEP_CLUSTER); see conformance/go/README.md.
set -euo pipefail
cd "$(dirname "$0")/go"
: "${LOCKSTEP_ADDRS:?set LOCKSTEP_ADDRS=host:port[,host:port...]}"
# Most tests wait. The failover comes last, and no test runs beside it.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# LOCKSTEP_TESTS names the tests to run, if not all.
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then set -- -run "(?i)$LOCKSTEP_TESTS" "$@"; fi
go test -v -count=1 -timeout 5m -parallel 32 "$@" . >"$log" 2>&1 || status=1
if [[ $status -ne 0 ]]; then grep -vE '^(=== |--- (PASS|SKIP)| +--- (PASS|SKIP))' "$log"; fi
grep '^client ' "$log"
grep -E "^--- " "$log"
printf '%s passed, %s failed, %s skipped\n' "$(grep -c '^    --- PASS' "$log")" "$(grep -c '^    --- FAIL' "$log")" "$(grep -c '^    --- SKIP' "$log")"
exit $status
