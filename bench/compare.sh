#!/usr/bin/env bash
# Measures SET NX PX and the compare-and-delete script at 50 connections with
# redis-benchmark: lockstep ephemeral, on one durable node and on three, beside
# redis-server without persistence and with appendfsync always. All servers run
# throughout; the rounds are interleaved; medians and ratios are printed.
#
#   bench/compare.sh ./lockstep [ROUNDS] [REQUESTS]
set -euo pipefail

binary=$(realpath "$1")
rounds=${2:-5}
requests=${3:-50000}
clients=50
script="if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
for tool in redis-server redis-benchmark redis-cli; do
  command -v "$tool" >/dev/null || { echo "compare.sh: $tool is not installed" >&2; exit 1; }
done

dir=$(mktemp -d)
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap stop EXIT

# Ports of this run, below those that the system gives to outgoing connections;
# a taken one makes the server say so and the script end.
base=$((10000 + RANDOM % 20000))
port() { echo $((base + $1)); }
spawn() { # LOG COMMAND...
  local log=$1
  shift
  "$@" >"$dir/$log.log" 2>&1 &
  pids+=($!)
}
wait_for() { # PORT
  for _ in $(seq 100); do
    [ "$(redis-cli -p "$1" SET probe 1 2>/dev/null)" = OK ] && return 0
    sleep 0.1
  done
  echo "compare.sh: no server at port $1" >&2
  tail -n 3 "$dir"/*.log >&2
  exit 1
}

mkdir "$dir/always"
spawn redis redis-server --port "$(port 0)" --save '' --appendonly no --dir "$dir"
spawn always redis-server --port "$(port 1)" --save '' --appendonly yes --appendfsync always --dir "$dir/always"
spawn ephemeral "$binary" --ephemeral --listen "127.0.0.1:$(port 2)" --http-listen ''
spawn one "$binary" --data "$dir/one" --listen "127.0.0.1:$(port 3)" --peer-listen "127.0.0.1:$(port 13)" --http-listen ''
peers="n1=127.0.0.1:$(port 14),n2=127.0.0.1:$(port 15),n3=127.0.0.1:$(port 16)"
for i in 1 2 3; do
  spawn "three$i" "$binary" --id "n$i" --data "$dir/three$i" --peers "$peers" --http-listen '' \
    --listen "127.0.0.1:$(port $((3 + i)))" --peer-listen "127.0.0.1:$(port $((13 + i)))"
done
for i in 0 1 2 3 4 5 6; do wait_for "$(port $i)"; done

# The node that leads, as a client with all addresses would find it.
leader=
for i in 4 5 6; do
  if "$binary" status --addr "127.0.0.1:$(port $i)" | grep -q '^role *leader'; then leader=$i; fi
done

names=("redis, no persistence" "redis, appendfsync always" "lockstep --ephemeral" "lockstep, one durable node" "lockstep, three nodes")
slots=(0 1 2 3 "$leader")

# rate PORT COMMAND... prints requests per second.
rate() {
  local p=$1
  shift
  redis-benchmark -p "$p" -c "$clients" -n "$requests" -r "$((2 * requests))" --csv "$@" 2>/dev/null |
    awk -F'","' 'END {print $2}'
}
measure() { # FILE SLOT
  redis-cli -p "$(port "$2")" FLUSHALL >/dev/null
  echo "set $1 $(rate "$(port "$2")" SET lock:__rand_int__ owner NX PX 30000)"
  echo "script $1 $(rate "$(port "$2")" EVAL "$script" 1 lock:__rand_int__ owner)"
}

for round in $(seq "$rounds"); do
  for i in "${!slots[@]}"; do measure "$i" "${slots[$i]}" >>"$dir/figures"; done
  echo "round $round of $rounds" >&2
done

median() { # WHAT INDEX
  awk -v w="$1" -v i="$2" '$1 == w && $2 == i {print $3}' "$dir/figures" | sort -n |
    awk '{a[NR] = $1} END {print (NR % 2) ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2}'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }

printf '%d connections, %d requests a round, median of %d rounds, requests per second\n\n' "$clients" "$requests" "$rounds"
printf '%-28s %12s %12s\n' '' 'SET NX PX' 'unlock script'
for i in "${!names[@]}"; do
  printf '%-28s %12.0f %12.0f\n' "${names[$i]}" "$(median set "$i")" "$(median script "$i")"
done
echo
printf '%-28s %12s %12s\n' 'ratio' 'SET NX PX' 'unlock script'
for pair in '2 0' '3 1' '4 1'; do
  read -r a b <<<"$pair"
  printf '%-28s %12s %12s   (to %s)\n' "${names[$a]}" "$(ratio "$(median set "$a")" "$(median set "$b")")" \
    "$(ratio "$(median script "$a")" "$(median script "$b")")" "${names[$b]}"
done
