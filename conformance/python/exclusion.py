"""Workers that take one lock by redis-py's Lock, while clients of other kinds take it too.

conformance/clients/exclusion_test.go starts it; room.go there says what the lines to the judge mean.
"""

import os
import random
import socket
import threading
import time
import uuid

import redis
from redis.lock import Lock

import where

JUDGE, NAME = where.split(os.environ["LOCKSTEP_JUDGE"]), os.environ["LOCKSTEP_LOCK"]
LEASE, RESERVE = (int(os.environ[f"LOCKSTEP_{v}_MS"]) / 1000 for v in ("LEASE", "RESERVE"))


class Judge:
    def __init__(self):
        self.conn = socket.create_connection(JUDGE)
        self.lines = self.conn.makefile("r", encoding="ascii")

    def __call__(self, *words):
        self.conn.sendall((" ".join(map(str, words)) + "\n").encode("ascii"))
        if not (answer := self.lines.readline()):
            raise EOFError("the judge has gone")
        return answer.strip()


def release(lock, owner):
    """Releases the lock if it is the owner's, again until the outcome is known or the lease must be over."""
    deadline = time.monotonic() + 2 * LEASE
    while time.monotonic() < deadline:
        lock.local.token = owner
        try:
            return lock.release()
        except redis.exceptions.LockError:
            return None  # it is not, or the library has sent the release twice
        except redis.exceptions.RedisError as fault:
            if "WRONGTYPE" in str(fault):
                return None  # Redisson holds the lock
        time.sleep(0.05)


def visit(client, judge, owner, asked):
    left = asked + LEASE - time.monotonic()
    if left < RESERVE:
        return
    judge("ENTER", owner, int(left * 1000))
    try:
        token = client.execute_command("LOCK.TOKEN", NAME, "OWNER", owner)
        if token is None:
            token = "none"
    except redis.exceptions.RedisError:
        token = "unknown"
    time.sleep(random.uniform(0.2, 0.6) if random.randrange(40) == 0 else random.uniform(0.001, 0.006))
    if time.monotonic() < asked + LEASE:
        judge("LEAVE", owner, token)
    else:
        judge("LATE", owner)


def work(address):
    host, port = where.split(address)
    client, judge = redis.Redis(host=host, port=port), Judge()
    judge("HELLO", "redis-py Lock")
    while judge("NEXT") == "GO":
        owner, asked = uuid.uuid4().hex, time.monotonic()
        lock = Lock(client, NAME, timeout=LEASE, thread_local=False)
        try:
            if lock.acquire(blocking_timeout=1, token=owner):
                visit(client, judge, owner, asked)
        except redis.exceptions.RedisError as fault:
            judge("NOTE", "INDETERMINATE" if "INDETERMINATE" in str(fault) else type(fault).__name__)
        # A lock that was not granted may still be the owner's: redis-py sends SET again after a lost connection.
        release(lock, owner)
        time.sleep(random.uniform(0, 0.05))


failed = []


def guarded(address):
    try:
        work(address)
    except BaseException:
        failed.append(address)
        raise


threads = [threading.Thread(target=guarded, args=(a,)) for a in where.ADDRS]
for t in threads:
    t.start()
for t in threads:
    t.join()
raise SystemExit(1 if failed else 0)
