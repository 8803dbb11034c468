"""Each lock library in each mode behind the same few words.

An adapter is one client of a lock, with connections of its own. `acquire`
returns something to release and extend with, or None when the lock was not to
be had within `wait` seconds. All else is the library's default.
"""

import asyncio
import threading

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
import redis_lock
import redlock
from pottery import ExtendUnlockedLock, Redlock, ReleaseUnlockedLock
from redis.asyncio.lock import Lock as AsyncLock
from redis.lock import Lock

import where
from importlib.metadata import version


def plain(addrs, **options):
    host, port = where.split(addrs["plain"][0])
    return redis.Redis(host=host, port=port, **options)


class RedisPy:
    """redis.lock.Lock over whatever client the mode gives."""

    client, version = "redis-py Lock", where.REDIS_PY
    extends = True
    lease = 8  # of a contended lock
    queue = "poller"  # how LOCK.WAITERS shows one that waits

    def __init__(self, connect, addrs):
        self.redis = connect(addrs)

    def seen(self, name, lock):
        """The key of a lock, and its owner as the library knows it."""
        return name, lock.local.token.decode()

    def acquire(self, name, ttl, wait=0):
        lock = Lock(self.redis, name, timeout=ttl, thread_local=False)
        got = lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)
        return lock if got else None

    def release(self, lock):
        lock.release()

    def extend(self, lock, ttl):
        lock.extend(ttl, replace_ttl=True)

    refused = redis.exceptions.LockError

    def foreign(self, name, lock):
        """A lock object of somebody who does not own the lock."""
        other = Lock(self.redis, name, timeout=1)
        other.local.token = b"somebody else"
        return other

    def close(self):
        self.redis.close()


class AsyncRedisPy(RedisPy):
    """The same on asyncio, in an event loop of its own."""

    client = "redis-py Lock (asyncio)"

    def __init__(self, connect, addrs):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.redis = self._run(self._connect(connect, addrs))

    async def _connect(self, connect, addrs):
        return connect(addrs)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout=60)

    def acquire(self, name, ttl, wait=0):
        lock = AsyncLock(self.redis, name, timeout=ttl, thread_local=False)
        got = self._run(lock.acquire(blocking=wait > 0, blocking_timeout=wait or None))
        return lock if got else None

    def release(self, lock):
        self._run(lock.release())

    def extend(self, lock, ttl):
        self._run(lock.extend(ttl, replace_ttl=True))

    def foreign(self, name, lock):
        other = AsyncLock(self.redis, name, timeout=1, thread_local=False)
        other.local.token = b"somebody else"
        return other

    def close(self):
        self._run(self.redis.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class PythonRedisLock:
    """redis_lock.Lock: waiters sleep in BLPOP until the unlock script pushes."""

    client, version = "python-redis-lock", version("python-redis-lock")
    extends = True
    queue = "blocked"
    # It waits in BLPOP for as long as a lease, and redis-py's sockets time out after 5 s.
    lease = 4

    def __init__(self, connect, addrs):
        self.redis = connect(addrs)

    def acquire(self, name, ttl, wait=0):
        lock = redis_lock.Lock(self.redis, name, expire=ttl)
        if wait:
            got = lock.acquire(timeout=min(int(wait), int(ttl)))
        else:
            got = lock.acquire(blocking=False)
        return lock if got else None

    def release(self, lock):
        lock.release()

    def extend(self, lock, ttl):
        lock.extend(ttl)

    def seen(self, name, lock):
        return "lock:" + name, lock.id

    refused = redis_lock.NotAcquired

    def foreign(self, name, lock):
        return redis_lock.Lock(self.redis, name, expire=1, id="somebody else")

    def close(self):
        self.redis.close()


class Pottery:
    """pottery.Redlock with one master."""

    client, version = "pottery Redlock", version("pottery")
    extends = True
    lease = 8

    def __init__(self, connect, addrs):
        self.redis = connect(addrs)

    def _lock(self, name, ttl):
        return Redlock(key=name, masters={self.redis}, auto_release_time=ttl)

    def acquire(self, name, ttl, wait=0):
        lock = self._lock(name, ttl)
        got = lock.acquire(timeout=wait) if wait else lock.acquire(blocking=False)
        return lock if got else None

    def release(self, lock):
        lock.release()

    def extend(self, lock, ttl):
        lock.extend()  # always by the time given at first

    queue = ""  # it asks with another name each time, so LOCK.WAITERS does not show it

    def seen(self, name, lock):
        return lock.key, lock._uuid

    refused = (ReleaseUnlockedLock, ExtendUnlockedLock)

    def foreign(self, name, lock):
        return self._lock(name, 1)

    def close(self):
        self.redis.close()


class RedlockPy:
    """redlock.Redlock (redlock-py) with one server; it retries three times."""

    client, version = "redlock-py", version("redlock-py")
    extends = False
    lease = 8
    refused = None  # unlock says nothing
    queue = "poller"

    def seen(self, name, lock):
        return name, lock.key.decode() if isinstance(lock.key, bytes) else lock.key

    def __init__(self, connect, addrs):
        self.redis = connect(addrs)
        self.manager = redlock.Redlock([self.redis])

    def acquire(self, name, ttl, wait=0):
        if wait:
            # What it offers to those who want to wait: more tries of 200 ms.
            self.manager.retry_count = int(wait / 0.2)
        else:
            self.manager.retry_count = 1
        return self.manager.lock(name, int(ttl * 1000)) or None

    def release(self, lock):
        self.manager.unlock(lock)

    def foreign(self, name, lock):
        return redlock.Lock(0, name, b"somebody else")

    def close(self):
        self.redis.close()


def sentinel(addrs, **options):
    # What the Sentinels are spoken to in has options of its own.
    found = redis.sentinel.Sentinel([where.split(a) for a in addrs["sentinel"]], sentinel_kwargs=options or None, **options)
    return found.master_for(where.MASTER)


def async_sentinel(addrs, **options):
    found = redis.asyncio.sentinel.Sentinel([where.split(a) for a in addrs["sentinel"]], sentinel_kwargs=options or None, **options)
    return found.master_for(where.MASTER)


def cluster(addrs, **options):
    nodes = [redis.cluster.ClusterNode(*where.split(a)) for a in addrs["cluster"]]
    return redis.RedisCluster(startup_nodes=nodes, **options)


def async_cluster(addrs, **options):
    nodes = [redis.asyncio.cluster.ClusterNode(*where.split(a)) for a in addrs["cluster"]]
    return redis.asyncio.RedisCluster(startup_nodes=nodes, **options)


def async_plain(addrs, **options):
    host, port = where.split(addrs["plain"][0])
    return redis.asyncio.Redis(host=host, port=port, **options)


# A program sets these and nothing else; redis-py verifies the chain and the name.
TRUSTED = {"ssl": True, "ssl_ca_certs": where.CA, "ssl_certfile": where.CERT, "ssl_keyfile": where.KEY, "ssl_check_hostname": True}


def tls(connect):
    return lambda addrs: connect(addrs["tls"], **TRUSTED)


# (adapter, mode, connect)
ALL = [
    (RedisPy, "plain RESP3", plain),
    (RedisPy, "plain RESP2", lambda a: plain(a, protocol=2)),
    (RedisPy, "sentinel RESP3", sentinel),
    (RedisPy, "sentinel RESP2", lambda a: sentinel(a, protocol=2)),
    (RedisPy, "cluster RESP3", cluster),
    (RedisPy, "cluster RESP2", lambda a: cluster(a, protocol=2)),
    (AsyncRedisPy, "plain RESP3", async_plain),
    (AsyncRedisPy, "plain RESP2", lambda a: async_plain(a, protocol=2)),
    (AsyncRedisPy, "sentinel RESP3", async_sentinel),
    (AsyncRedisPy, "sentinel RESP2", lambda a: async_sentinel(a, protocol=2)),
    (AsyncRedisPy, "cluster RESP3", async_cluster),
    (AsyncRedisPy, "cluster RESP2", lambda a: async_cluster(a, protocol=2)),
    (PythonRedisLock, "plain RESP3", plain),
    (PythonRedisLock, "plain RESP2", lambda a: plain(a, protocol=2)),
    (PythonRedisLock, "sentinel", sentinel),
    (Pottery, "plain RESP3", plain),
    (Pottery, "sentinel", sentinel),
    (RedlockPy, "plain RESP3", plain),
    (RedlockPy, "plain RESP2", lambda a: plain(a, protocol=2)),
    (RedlockPy, "sentinel", sentinel),
    (RedisPy, "plain TLS", tls(plain)),
    (RedisPy, "sentinel TLS", tls(sentinel)),
    (RedisPy, "cluster TLS", tls(cluster)),
    (AsyncRedisPy, "plain TLS", tls(async_plain)),
    (AsyncRedisPy, "cluster TLS", tls(async_cluster)),
    (PythonRedisLock, "plain TLS", tls(plain)),
    (Pottery, "plain TLS", tls(plain)),
    (RedlockPy, "plain TLS", tls(plain)),
]


def available(mode):
    """Why a mode cannot be had here; None if it can."""
    if mode.endswith("TLS") and not where.TLS["plain"]:
        return "no TLS listener"
    if mode.startswith("sentinel") and not where.SENTINELS:
        return "no Sentinel listener"
    if mode.startswith("cluster") and not where.CLUSTER:
        return "no Cluster listener"
    return None
