#!/usr/bin/env bash
# Runs the Java clients (java/README.md) against the servers in LOCKSTEP_ADDRS.
#
#   LOCKSTEP_ADDRS=127.0.0.1:6379 conformance/run-java.sh
#   LOCKSTEP_ADDRS=127.0.0.1:6381,127.0.0.1:6382,127.0.0.1:6383 conformance/run-java.sh
#
# The first address serves all tests; the others only those that are about several nodes.
# Prints the versions and Surefire's counts, on a failure also what failed; the whole output is in java/target/run-java*.log.
set -euo pipefail

if [[ -z "${LOCKSTEP_ADDRS:-}" ]]; then
  echo "run-java.sh: set LOCKSTEP_ADDRS=host:port[,host:port...]" >&2
  exit 2
fi
export LOCKSTEP_ADDRS

# Clients retry for minutes what a glance can tell: nobody is there.
for address in ${LOCKSTEP_ADDRS//,/ }; do
  host=${address%:*}
  host=${host#[}
  host=${host%]}
  if ! timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$host" "${address##*:}" 2>/dev/null; then
    echo "run-java.sh: no server answers at $address; start it first" >&2
    exit 1
  fi
done

cd "$(dirname "$0")/java"
mkdir -p target
log=target/run-java.log

# Fails with what a run of Maven says about its failures.
check() {
  local log=$1 status=$2
  [[ $status -ne 0 ]] || return 0
  grep -E '^client |Tests run:|FAILURE|^\[ERROR\]   [A-Z]|^\[ERROR\] [^ ]*\.java:|<<< ' "$log" || tail -n 60 "$log"
  echo "run-java.sh: failed, see $PWD/$log" >&2
  # What failed comes last: a log that is cut keeps its end.
  grep -E '^\[ERROR\] {3}[A-Z]' "$log" >"$log.failed" || grep -E '^\[ERROR\] [A-Z]' "$log" >"$log.failed" || true
  sed -E 's/^\[ERROR\] +/failed: /; 20q' "$log.failed" >&2
  exit 1
}

# --fail-at-end: one client's failure must not hide another's.
maven() {
  local log=$1 status=0
  shift
  mvn -B -ntp --fail-at-end -Dstyle.color=never "$@" test >"$log" 2>&1 || status=$?
  check "$log" "$status"
  grep -E '^client |Tests run: [1-9][0-9]*, .*Skipped: [0-9]+$' "$log"
}

# LOCKSTEP_TESTS names the tests to run, if not all.
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then
  maven "$log" -Dtest="*${LOCKSTEP_TESTS^}*" -Dsurefire.failIfNoSpecifiedTests=false -DfailIfNoTests=false
  exit 0
fi
maven "$log"
# Then the tests that kill the leader: one module at a time, for they disturb all others.
maven target/run-java-failover.log -T1 -DexcludedGroups= -Dgroups=failover -DfailIfNoTests=false

# A run in which one of the suites silently did nothing is no success. support has no tests.
modules=$(($(grep -c '<module>' pom.xml) - 1))
suites=$(grep -cE '^\[(INFO|WARNING)\] Tests run: [1-9][0-9]*, Failures: 0, Errors: 0, Skipped: [0-9]+$' "$log" || true)
if [[ $suites -ne $modules ]]; then
  echo "run-java.sh: want the results of $modules suites, got $suites, see $PWD/$log" >&2
  exit 1
fi
