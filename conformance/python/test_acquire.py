"""docs/locks.md with redis-py: LOCK.ACQUIRE and LOCK.RELEASE by the generic call."""

import asyncio
import threading
import time

import pytest
import redis

import adapters
import where

WAIT = 20  # seconds, for a lock that the test is to get


class Sync:
    client, version = "redis-py LOCK.ACQUIRE", where.REDIS_PY

    def __init__(self):
        host, port = where.split(where.addrs_now()["plain"][0])
        wait = WAIT
        client = redis.Redis(host=host, port=port, socket_timeout=wait + 5)
        self.redis = client

    def acquire(self, key, owner, wait=0):
        client = self.redis
        reply = client.execute_command("LOCK.ACQUIRE", key, owner, "PX", 30000, "WAIT", int(wait * 1000))
        return reply

    def release(self, key, owner):
        client = self.redis
        holds = client.execute_command("LOCK.RELEASE", key, owner)
        return holds

    def close(self):
        self.redis.close()


class Async(Sync):
    """The same on asyncio, in an event loop of its own."""

    client = "redis-py LOCK.ACQUIRE (asyncio)"

    def __init__(self):
        self.loop = asyncio.new_event_loop()

        async def made():
            return adapters.async_plain(where.addrs_now(), socket_timeout=WAIT + 5)

        self.redis = self.loop.run_until_complete(made())

    def acquire(self, key, owner, wait=0):
        return self.loop.run_until_complete(super().acquire(key, owner, wait))

    def release(self, key, owner):
        return self.loop.run_until_complete(super().release(key, owner))

    def close(self):
        self.loop.run_until_complete(self.redis.aclose())
        self.loop.close()


@pytest.fixture
def make(case):
    """Makes clients of the case, each with connections of its own."""
    made = []

    def one():
        made.append(case[0]())
        return made[-1]

    try:
        one().release("none", "nobody")
    except redis.ResponseError as fault:
        if where.CONTROL or "unknown command" not in str(fault):
            raise
        pytest.skip("the server has no LOCK.ACQUIRE")
    yield one
    for c in made:
        c.close()


every = pytest.mark.parametrize("case", [(Sync, "plain RESP3"), (Async, "plain RESP3")], ids=["sync", "asyncio"])


def granted(client, key, owner, wait=0):
    token, ttl, holds = client.acquire(key, owner, wait)
    assert token > 0 and 0 < ttl <= 30000 and holds == 1


@every
def test_lock_acquire_replies_three_integers(case, make, key):
    client = make()
    granted(client, key, "me")
    assert client.release(key, "me") == 0


@every
def test_lock_acquire_waits_for_the_release(case, make, key):
    first, second = make(), make()
    granted(first, key, "first")
    begin, holds = time.monotonic(), []
    release = threading.Timer(0.25, lambda: holds.append(first.release(key, "first")))
    release.start()
    granted(second, key, "second", WAIT)
    assert time.monotonic() - begin >= 0.25
    release.join()
    assert holds == [0]
    assert second.release(key, "second") == 0


@every
def test_lock_acquire_in_vain_replies_null(case, make, key):
    first, second = make(), make()
    granted(first, key, "first")
    begin = time.monotonic()
    assert second.acquire(key, "second", 0.2) is None
    assert time.monotonic() - begin >= 0.2
    assert second.release(key, "second") is None
    assert first.release(key, "first") == 0


@every
def test_lock_acquire_refuses_a_deadlock(case, make, key):
    client = make()
    granted(client, key, "me")
    with pytest.raises(redis.ResponseError, match="^DEADLOCK "):
        client.acquire(key, "me", WAIT)
    assert client.release(key, "me") == 0
