#!/usr/bin/env bash
# Runs the Ruby clients against the servers in LOCKSTEP_ADDRS (and
# LOCKSTEP_SENTINELS, LOCKSTEP_CLUSTER); see conformance/ruby/README.md.
set -euo pipefail
cd "$(dirname "$0")/ruby"
: "${LOCKSTEP_ADDRS:?set LOCKSTEP_ADDRS=host:port[,host:port...]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ruby -r./adapters -e 'Adapters::ALL.map { |a| "client #{a.client} #{a.version}" }.uniq.each { |line| puts line }'
# Most tests wait, so many run at once. Sidekiq and the failover, which must
# have the servers for itself, come after them.
# LOCKSTEP_TESTS names the tests to run, if not all.
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then MT_CPU=48 exec ruby locks_test.rb -n "/$LOCKSTEP_TESTS/"; fi
status=0
for run in "locks_test.rb recipes_test.rb" acquire_test.rb sidekiq_test.rb failover.rb; do
  # shellcheck disable=SC2086 # files
  MT_CPU=48 timeout 300 ruby -e 'ARGV.each { |file| require "./#{file}" }; ARGV.clear' $run >"$log" 2>&1 || { status=1; cat "$log"; }
  grep -E '^[0-9]+ runs, ' "$log" || { status=1; echo "$run: no result"; }
done
exit $status
