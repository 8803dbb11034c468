#!/usr/bin/env bash
# Runs the tests of redsync as they are in its module, with the redis-server that stands first on the PATH.
set -euo pipefail
cd "$(dirname "$0")/../go"
version=$(go list -m -f '{{.Version}}' github.com/go-redsync/redsync/v4)
cp -r "$(go list -m -f '{{.Dir}}' github.com/go-redsync/redsync/v4)" "$SCRATCH/redsync"
chmod -R u+w "$SCRATCH/redsync"
cd "$SCRATCH/redsync"
# Of this module no newer version could be had: see conformance/README.md.
go mod edit -replace github.com/redis/rueidis/rueidiscompat=github.com/redis/rueidis/rueidiscompat@v1.0.69
echo "redsync $version: $(command -v redis-server)"
go test -mod=mod -c -o redsync.test .
# Its servers have fixed ports from the range of outgoing connections: in a network of its own nobody else takes them, if one can be had.
apart=()
if unshare --map-root-user --net ip link set lo up 2>/dev/null; then
  apart=(unshare --map-root-user --net sh -c 'ip link set lo up && exec "$@"' sh)
fi
"${apart[@]}" ./redsync.test -test.count=1 -test.timeout=5m
