"""Locks as people write them by hand, on redis-py."""

import threading
import time
import uuid

import pytest
import redis

import adapters
import where

pytestmark = pytest.mark.client("redis-py recipes", where.REDIS_PY, "plain RESP3")


@pytest.fixture
def r():
    client = adapters.plain(where.addrs_now(), decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def other():
    client = adapters.plain(where.addrs_now(), decode_responses=True)
    yield client
    client.close()


def eventually(limit, ok):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if ok():
            return True
        time.sleep(0.01)
    return False


def test_setnx_and_expire(r, other, key):
    assert r.setnx(key, "a")
    assert r.expire(key, 2)
    assert not other.setnx(key, "b")
    assert 0 < other.ttl(key) <= 2
    assert eventually(15, lambda: other.setnx(key, "b")), "the lease never ended"
    assert other.ttl(key) == -1
    assert other.delete(key) == 1
    assert other.ttl(key) == -2


def test_getset_of_a_deadline(r, other, key):
    """The value is the time at which the lock ends; GETSET decides who takes over."""
    assert r.setnx(key, time.time() - 1)  # its owner died
    assert not r.setnx(key, "x")
    seen = r.get(key)
    assert float(seen) < time.time()
    mine, theirs = str(time.time() + 30), str(time.time() + 31)
    assert r.getset(key, mine) == seen, "r is the one that takes over"
    assert other.getset(key, theirs) == mine, "other came second and sees a lock that is held"
    assert float(mine) > time.time()
    r.delete(key)


def test_set_nx_px_and_script(r, other, key):
    unlock = r.register_script(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end")
    token = str(uuid.uuid4())
    assert r.set(key, token, nx=True, px=30000) is True
    assert other.set(key, "thief", nx=True, px=30000) is None
    assert unlock(keys=[key], args=["thief"], client=other) == 0
    assert r.get(key) == token
    assert unlock(keys=[key], args=[token]) == 1
    assert r.exists(key) == 0


def test_blpop_semaphore(r, other, key):
    """A list holds the permits: BLPOP takes one, RPUSH gives it back."""
    r.rpush(key, "permit-1", "permit-2")
    assert r.blpop(key, 1) == (key, "permit-1")
    assert r.blpop(key, 1) == (key, "permit-2")
    assert r.blpop(key, 1) is None
    got = []
    waiter = threading.Thread(target=lambda: got.append(other.blpop(key, 4)))
    waiter.start()
    time.sleep(0.2)
    assert got == []
    r.rpush(key, "permit-1")
    waiter.join()
    assert got == [(key, "permit-1")]
    assert r.llen(key) == 0


def test_blpop_semaphore_is_fair(r, key):
    """Waiters are served in the order in which they came."""
    clients = [adapters.plain(where.addrs_now(), decode_responses=True) for _ in range(3)]
    order, threads = [], []

    def wait(n):
        _, permit = clients[n].blpop(key, 4)
        order.append((permit, n))

    for n in range(3):
        threads.append(threading.Thread(target=wait, args=(n,)))
        threads[-1].start()
        time.sleep(0.2)
    r.rpush(key, "first", "second", "third")
    for t in threads:
        t.join()
    assert dict(order) == {"first": 0, "second": 1, "third": 2}
    for c in clients:
        c.close()


def test_watch_and_multi_unlock(r, other, key):
    r.set(key, "mine", px=30000)
    with r.pipeline() as p:
        p.watch(key)
        assert p.get(key) == "mine"
        p.multi()
        p.delete(key)
        assert p.execute() == [1]
    assert r.exists(key) == 0


def test_watch_and_multi_unlock_of_a_lock_that_was_taken_over(r, other, key):
    r.set(key, "mine", px=30000)
    with r.pipeline() as p:
        p.watch(key)
        assert p.get(key) == "mine"
        other.set(key, "theirs", px=30000)
        p.multi()
        p.delete(key)
        with pytest.raises(redis.WatchError):
            p.execute()
    assert r.get(key) == "theirs"


def test_watch_notices_that_the_lock_expired(r, key):
    r.set(key, "mine", px=300)
    with r.pipeline() as p:
        p.watch(key)
        assert p.get(key) == "mine"
        assert eventually(15, lambda: r.exists(key) == 0)
        p.multi()
        p.delete(key)
        with pytest.raises(redis.WatchError):
            p.execute()


def test_listener_to_the_expiry_of_a_lock(r, other, key):
    """notify-keyspace-events Ex, and a waiter that sleeps until the lock ends."""
    r.config_set("notify-keyspace-events", "Ex")
    events = other.pubsub(ignore_subscribe_messages=True)
    events.psubscribe("__keyevent@*__:expired")
    start = time.monotonic()
    assert eventually(5, lambda: events.get_message() is None and events.subscribed)
    assert r.set(key, "mine", nx=True, px=700)
    seen = []

    def expired():
        message = events.get_message(timeout=0.1)
        if message and message["data"] == key:
            seen.append(message)
        return seen

    assert eventually(15, expired), "no event"
    assert seen[0]["channel"] == "__keyevent@0__:expired"
    assert time.monotonic() - start >= 0.7
    assert other.set(key, "next", nx=True, px=1000)
    events.close()


def test_listener_to_the_release_of_a_lock(r, other, key):
    """PUBLISH from the unlock script wakes those who subscribed."""
    events = other.pubsub(ignore_subscribe_messages=True)
    events.subscribe(key + ":released")
    r.set(key, "mine", nx=True, px=30000)
    unlock = r.register_script(
        "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) "
        "return redis.call('publish', KEYS[1] .. ':released', '1') end return -1")
    seen = []

    def published():
        message = events.get_message(timeout=0.1)
        if message:
            seen.append(message["data"])
        elif r.get(key) == "mine":
            unlock(keys=[key], args=["mine"])
        return seen

    assert eventually(15, published)
    assert seen == ["1"]
    events.close()
