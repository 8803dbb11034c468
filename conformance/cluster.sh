# Starts and stops lockstep nodes for the suites; source it.
#
#   start_nodes BINARY N     N nodes on free ports; waits until all are ready
#   stop_nodes               ends them, by pid
#   wait_ready I             waits for node I
#   leader_of                prints the number of the node that leads
#
# Sets DIR (working directory) and the arrays PIDS, RESP, PEER, HTTP (ports).

declare -a PIDS RESP PEER HTTP ARGS

# free_ports N prints N free TCP ports of the loopback interface.
free_ports() {
  python3 - "$1" <<'PY' 2>/dev/null || perl - "$1" <<'PL'
import socket, sys
socks = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in socks: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in socks])
PY
use IO::Socket::INET;
my @s = map { IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1) } 1 .. $ARGV[0];
print join(" ", map { $_->sockport } @s), "\n";
PL
}

start_node() { # I
  "$BINARY" serve "${COMMON[@]}" --id "n$1" --data "$DIR/n$1" --listen "127.0.0.1:${RESP[$1]}" \
    --peer-listen "127.0.0.1:${PEER[$1]}" --http-listen "127.0.0.1:${HTTP[$1]}" >>"$DIR/n$1.log" 2>&1 &
  PIDS[$1]=$!
}

wait_ready() { # I
  for _ in $(seq 200); do
    if curl -fs "http://127.0.0.1:${HTTP[$1]}/readyz" >/dev/null 2>&1; then return 0; fi
    if ! kill -0 "${PIDS[$1]}" 2>/dev/null; then break; fi
    sleep 0.1
  done
  echo "node n$1 did not become ready:" >&2
  tail -5 "$DIR/n$1.log" >&2
  return 1
}

start_nodes() { # BINARY N
  BINARY=$1
  local n=$2 ports peers="" i
  DIR=$(mktemp -d)
  read -r -a ports <<<"$(free_ports $((3 * n)))"
  for i in $(seq 1 "$n"); do
    RESP[$i]=${ports[$((3 * i - 3))]} PEER[$i]=${ports[$((3 * i - 2))]} HTTP[$i]=${ports[$((3 * i - 1))]}
    peers+="${peers:+,}n$i=127.0.0.1:${PEER[$i]}"
  done
  COMMON=()
  [ "$n" -gt 1 ] && COMMON=(--peers "$peers")
  for i in $(seq 1 "$n"); do start_node "$i"; done
  for i in $(seq 1 "$n"); do wait_ready "$i"; done
}

leader_of() {
  local i
  for i in "${!RESP[@]}"; do
    if [ "$("$BINARY" status --addr "127.0.0.1:${RESP[$i]}" 2>/dev/null | awk '$1 == "role" {print $2}')" = leader ]; then
      echo "$i"
      return 0
    fi
  done
  return 1
}

stop_nodes() {
  local i
  for i in "${!PIDS[@]}"; do kill -TERM "${PIDS[$i]}" 2>/dev/null || true; done
  for i in "${!PIDS[@]}"; do wait "${PIDS[$i]}" 2>/dev/null || true; done
  PIDS=() RESP=() PEER=() HTTP=()
  [ -n "${DIR:-}" ] && rm -rf "$DIR"
}
