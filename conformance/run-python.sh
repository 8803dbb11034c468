#!/usr/bin/env bash
# Runs the Python clients against the servers in LOCKSTEP_ADDRS (and
# LOCKSTEP_SENTINELS, LOCKSTEP_CLUSTER); see conformance/python/README.md.
set -euo pipefail
cd "$(dirname "$0")/python"
: "${LOCKSTEP_ADDRS:?set LOCKSTEP_ADDRS=host:port[,host:port...]}"

# The environment is built again when the pinned versions change.
if ! cmp -s requirements.txt .venv/installed; then
  python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check -r requirements.txt
  cp requirements.txt .venv/installed
fi
export PYTHONDONTWRITEBYTECODE=1
# With arguments it runs a program instead of the tests.
if [[ $# -gt 0 ]]; then exec .venv/bin/python "$@"; fi
# LOCKSTEP_TESTS names the tests to run, if not all.
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then exec .venv/bin/pytest --tb=short -m "not failover" -n 12 -k "$LOCKSTEP_TESTS"; fi
# Most tests wait for leases; the failover must have the servers for itself.
status=0
.venv/bin/pytest --tb=short -m "not failover" -n 12 || status=1
.venv/bin/pytest --tb=short -m failover || status=1
exit $status
