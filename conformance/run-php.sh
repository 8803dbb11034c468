#!/usr/bin/env bash
# Runs the PHP clients against the servers in LOCKSTEP_ADDRS (and
# LOCKSTEP_SENTINELS, LOCKSTEP_CLUSTER); see conformance/php/README.md.
set -euo pipefail
cd "$(dirname "$0")/php"
: "${LOCKSTEP_ADDRS:?set LOCKSTEP_ADDRS=host:port[,host:port...]}"
php -r 'require "./adapters.php"; foreach (libraries() as $l) $seen["client {$l["about"]["client"]} {$l["about"]["version"]}"] = 1; echo implode("\n", array_keys($seen)), "\n";'
# The failover must have the servers for itself.
status=0
if [[ -n "${LOCKSTEP_TESTS:-}" ]]; then exec timeout --kill-after=10 300 php locks.php; fi
for run in locks.php failover.php; do
  timeout --kill-after=10 300 php "$run" || status=1
done
exit $status
