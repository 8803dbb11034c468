"""Takes and drops locks by redis-py's Lock, as the lines on standard input say.

conformance/bridge/bridge_test.go starts it; conformance/bridge/worker.go says what the lines mean.
"""

import sys

import redis
from redis.lock import Lock

client = redis.Redis.from_url(sys.argv[1], socket_timeout=10)
locks = {}
for line in sys.stdin:
    verb, name, *lease = line.split()
    try:
        if verb == "take":
            lock = Lock(client, name, timeout=int(lease[0]) / 1000, blocking=False, thread_local=False)
            if answer := lock.acquire():
                locks[name] = lock
        elif verb == "renew":
            answer = locks[name].extend(int(lease[0]) / 1000, replace_ttl=True)
        else:
            locks.pop(name).release()
            answer = True
        print("yes" if answer else "no", flush=True)
    except redis.exceptions.LockError:
        print("no", flush=True)
    except redis.exceptions.RedisError as fault:
        print("error", str(fault).replace("\n", " "), flush=True)
