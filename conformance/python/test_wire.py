"""What redis-py and the libraries on it send, row by row, and where they would break.

The names follow conformance/WIRE.md: trap_N is its list of traps, the rest
are rows of its tables of commands, scripts and handshakes.
"""

import asyncio
import re
import threading
import time

import pytest
import redis
import redis_lock

import adapters
import where


@pytest.fixture
def r():
    client = adapters.plain(where.addrs_now())
    yield client
    client.close()


def test_trap_1_reported_version_has_three_parts(r):
    version = r.info("server")["redis_version"]
    assert isinstance(version, str), "two parts would be read as a float"
    assert re.fullmatch(r"7\.\d+\.\d+", version), "8 and later switch clients to commands that are not here"


def test_trap_3_hello_is_mandatory(r):
    reply = r.execute_command("HELLO", "3")
    assert reply[b"proto"] == 3
    assert {b"server", b"version", b"id", b"mode", b"role", b"modules"} <= reply.keys()


def test_trap_10_several_databases(key):
    clients = [adapters.plain(where.addrs_now(), db=n) for n in (0, 1, 9, 10, 15)]
    for n, client in enumerate(clients):
        assert client.set(key, n, nx=True, px=30000), "databases share keys"
    assert [int(c.get(key)) for c in clients] == [0, 1, 2, 3, 4]
    for c in clients:
        c.delete(key)
        c.close()


def test_trap_11_a_request_sent_again_is_not_granted_twice(r, key):
    """The same token again answers nil, as in Redis."""
    assert r.set(key, "token", nx=True, px=30000) is True
    assert r.set(key, "token", nx=True, px=30000) is None


def test_handshake(r):
    """HELLO 3, CLIENT MAINT_NOTIFICATIONS (an error is taken), SETINFO, SETNAME, SELECT."""
    named = adapters.plain(where.addrs_now(), client_name="conformance", db=3)
    assert named.ping()
    info = named.client_info()
    assert info["name"] == "conformance"
    assert info["db"] == 3
    assert info["resp"] == "3"
    with pytest.raises(redis.ResponseError, match="unknown subcommand|Unknown subcommand"):
        r.execute_command("CLIENT", "MAINT_NOTIFICATIONS", "ON")
    named.close()


def test_handshake_of_resp2():
    client = adapters.plain(where.addrs_now(), protocol=2)
    assert client.client_info()["resp"] == "2"
    client.close()


def test_set_nx_without_ttl(r, key):
    """redis-py Lock with timeout=None, python-redis-lock with expire=None."""
    lock = r.lock(key)
    assert lock.acquire(blocking=False)
    assert r.ttl(key) == -1
    lock.release()
    endless = redis_lock.Lock(r, key)
    assert endless.acquire(blocking=False)
    assert r.ttl("lock:" + key) == -1
    with pytest.raises(redis_lock.NotExpirable):
        endless.extend(5)
    endless.release()


@pytest.mark.parametrize("options", [
    ["NX", "PX", "30000"], ["PX", "30000", "NX"], ["NX", "EX", "30"], ["EX", "30", "NX"],
    ["nx", "ex", "30"], ["px", "30000", "nx"], ["NX"],
], ids=" ".join)
def test_set_options_in_any_order_and_case(r, key, options):
    assert r.execute_command("SET", key, "v", *options) in (True, b"OK")
    assert r.execute_command("SET", key, "v", *options) is None
    r.delete(key)


def test_set_xx(r, key):
    assert r.set(key, "v", xx=True, px=30000) is None
    assert r.set(key, "v", px=30000)
    assert r.set(key, "w", xx=True, px=30000)
    assert r.get(key) == b"w"
    r.delete(key)


def test_setnx(r, key):
    assert r.setnx(key, "v") is True
    assert r.setnx(key, "v") is False
    r.delete(key)


def test_commands_around_locks(r, key):
    """GET, DEL, UNLINK, EXISTS, PTTL, TTL, PEXPIRE, EXPIRE, TYPE, LLEN."""
    assert (r.get(key), r.ttl(key), r.pttl(key), r.exists(key)) == (None, -2, -2, 0)
    r.set(key, "v")
    assert (r.ttl(key), r.pttl(key), r.type(key)) == (-1, -1, b"string")
    assert r.pexpire(key, 30000) and 0 < r.pttl(key) <= 30000
    assert r.expire(key, 30) and 0 < r.ttl(key) <= 30
    assert not r.expire(key + ":none", 30)
    assert r.unlink(key) == 1
    assert r.delete(key, key) == 0
    r.lpush(key, "a", "b")
    assert r.llen(key) == 2
    r.delete(key)


def test_blpop_wakes_on_lpush_from_a_script(r, key):
    """python-redis-lock's release."""
    got = []
    other = adapters.plain(where.addrs_now())
    waiter = threading.Thread(target=lambda: got.append(other.blpop(key, 4)))
    waiter.start()
    time.sleep(0.2)
    assert r.eval("return redis.call('lpush', KEYS[1], 1)", 1, key) == 1
    waiter.join()
    assert got == [(key.encode(), b"1")]
    other.close()


def test_blpop_timeout_is_null_in_both_protocols(key):
    for protocol in (2, 3):
        client = adapters.plain(where.addrs_now(), protocol=protocol)
        assert client.blpop(key, 1) is None
        client.close()


def test_evalsha_noscript_load_evalsha(r, key):
    """redis-py's Script."""
    script = r.register_script(f"return {{KEYS[1], ARGV[1], '{key}'}}")
    assert r.script_exists(script.sha) == [False]
    with pytest.raises(redis.exceptions.NoScriptError):
        r.evalsha(script.sha, 1, "k", "a")
    assert script(keys=["k"], args=["a"]) == [b"k", b"a", key.encode()]
    assert r.script_exists(script.sha) == [True]
    assert r.script_load(f"return {{KEYS[1], ARGV[1], '{key}'}}") in (script.sha, script.sha.encode())


def test_script_features_of_redis_py_lock(r, key):
    """String plus number as a number argument; `not token` on nil; pttl, pexpire."""
    lock = r.lock(key, timeout=10)
    lock.acquire()
    lock.extend(10)
    assert 19000 < r.pttl(key) <= 20000
    lock.reacquire()
    assert 9000 < r.pttl(key) <= 10000
    r.delete(key)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.release()


def test_script_features_of_python_redis_lock(r):
    """reset and reset_all: pairs over KEYS-less `keys`, string.sub, `..`, `#`."""
    client = adapters.plain(where.addrs_now(), db=14)  # reset_all finds every lock of a database
    names = ["one", "two"]
    locks = [redis_lock.Lock(client, name, expire=60) for name in names]
    assert all(lock.acquire(blocking=False) for lock in locks)
    assert locks[0].locked() and locks[0].get_owner_id() == locks[0].id
    locks[0].reset()
    assert not locks[0].locked()
    redis_lock.reset_all(client)
    assert not locks[1].locked()
    assert client.blpop("lock-signal:one", 1) == (b"lock-signal:one", b"1")
    client.delete(*client.keys("*"))
    client.close()


def test_python_redis_lock_renews_in_the_background(r, key):
    lock = redis_lock.Lock(r, key, expire=3, auto_renewal=True)
    with lock:
        time.sleep(4)
        assert redis_lock.Lock(r, key, expire=1).acquire(blocking=False) is False
    assert not lock.locked()


def test_ping_in_a_resp2_subscriber(key):
    client = adapters.plain(where.addrs_now(), protocol=2)
    events = client.pubsub()
    events.subscribe(key)
    assert events.get_message(timeout=5)["type"] == "subscribe"
    events.ping()
    assert events.get_message(timeout=5)["type"] == "pong"
    events.close()
    client.close()


def test_cluster_client_reads_command(key):
    """RedisCluster's constructor: CLUSTER SLOTS and the whole of COMMAND."""
    if reason := adapters.available("cluster"):
        pytest.skip(reason)
    client = adapters.cluster(where.addrs_now())
    assert client.set(key, "v", nx=True, px=30000)
    assert client.eval("return redis.call('del', KEYS[1])", 1, key) == 1
    assert sum(1 for n in client.get_nodes() if n.server_type == "primary") == 1
    client.close()


def test_sentinel_answers(key):
    """SENTINEL MASTERS and SLAVES as redis-py reads them."""
    if reason := adapters.available("sentinel"):
        pytest.skip(reason)
    addrs = where.addrs_now()
    found = redis.sentinel.Sentinel([where.split(a) for a in addrs["sentinel"]])
    assert found.discover_master(where.MASTER) == where.split(addrs["plain"][-1])
    assert len(found.discover_slaves(where.MASTER)) == where.NODES - 1
    with pytest.raises(redis.sentinel.MasterNotFoundError):
        found.discover_master("nobody")


def test_asyncio_pipeline(key):
    async def run():
        client = adapters.async_plain(where.addrs_now())
        async with client.pipeline(transaction=True) as p:
            reply = await p.set(key, "v", nx=True, px=30000).get(key).delete(key).execute()
        await client.aclose()
        return reply

    assert asyncio.run(run()) == [True, b"v", 1]
