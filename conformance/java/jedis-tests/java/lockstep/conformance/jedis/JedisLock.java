package lockstep.conformance.jedis;

import java.time.Duration;
import lockstep.conformance.SeedScripts;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.params.SetParams;

/**
 * The lock that articles on Jedis teach: SET NX EX with the owner's name, tried again until the waiting time is over,
 * kept by a watchdog, and released by the compare-and-delete script. Not reentrant.
 */
final class JedisLock {
    private final UnifiedJedis client;
    private final String key;
    private final String owner;
    private final Duration ttl;
    private final Duration retry;
    private KeepAlive keepAlive;

    /** A lock that is tried again every third of its TTL. */
    JedisLock(UnifiedJedis client, String key, String owner, Duration ttl) {
        this(client, key, owner, ttl, ttl.dividedBy(3));
    }

    JedisLock(UnifiedJedis client, String key, String owner, Duration ttl, Duration retry) {
        this.client = client;
        this.key = key;
        this.owner = owner;
        this.ttl = ttl;
        this.retry = retry;
    }

    /** Takes the lock, trying until the waiting time is over; always tries at least once. */
    boolean tryLock(Duration wait) throws InterruptedException {
        long start = System.nanoTime();
        while (true) {
            String reply = client.set(key, owner, SetParams.setParams().nx().ex(ttl.toSeconds()));
            if ("OK".equals(reply)) {
                keepAlive = new KeepAlive(() -> client.expire(key, ttl.toSeconds()) == 1, ttl);
                return true;
            }
            if (System.nanoTime() - start >= wait.toNanos()) {
                return false;
            }
            Thread.sleep(retry.toMillis());
        }
    }

    /** Releases the lock if this owner holds it; says whether it did. */
    boolean unlock() throws InterruptedException {
        if (keepAlive != null) {
            keepAlive.stop();
        }
        Object reply = client.eval(SeedScripts.COMPARE_AND_DELETE, 1, key, owner);
        return Long.valueOf(1).equals(reply);
    }

    /** What is left behind by an owner that dies: the key, and nobody who renews it. */
    void abandon() throws InterruptedException {
        keepAlive.stop();
    }

    KeepAlive keepAlive() {
        return keepAlive;
    }

    String key() {
        return key;
    }

    String owner() {
        return owner;
    }
}
