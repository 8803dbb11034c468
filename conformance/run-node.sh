#!/usr/bin/env bash
# Runs the Node clients against the servers in LOCKSTEP_ADDRS (and
# LOCKSTEP_SENTINELS, LOCKSTEP_CLUSTER); see conformance/node/README.md.
set -euo pipefail
cd "$(dirname "$0")/node"
: "${LOCKSTEP_ADDRS:?set LOCKSTEP_ADDRS=host:port[,host:port...]}"

# The modules are installed again when the pinned versions change.
if ! cmp -s package-lock.json node_modules/.installed; then
  npm ci --silent --no-audit --no-fund
  cp package-lock.json node_modules/.installed
fi
npm ls --depth=0 2>/dev/null | sed -n 's/^[^ ]* \(.*@\)/client \1/p'
# LOCKSTEP_TESTS names the tests to run, if not all.
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then exec node --test --test-name-pattern="$LOCKSTEP_TESTS" ./locks.test.js; fi
# The failover must have the servers for itself.
log=node_modules/.run.log
status=0
for run in "--test-concurrency=4 $(echo ./*.test.js)" failover.js; do
  # A suite takes a minute at most; one that hangs says so.
  # shellcheck disable=SC2086 # options and files
  timeout --kill-after=10 300 node --test --test-reporter=spec --test-reporter-destination="$log" $run || {
    code=$? status=1
    cat "$log"
    [[ $code -ne 124 ]] || echo "$run: not over after 300 s"
  }
  sed -n 's/^ℹ \(tests\|pass\|fail\|skipped\|duration_ms\)/\1/p' "$log" | paste -sd' '
done
exit $status
