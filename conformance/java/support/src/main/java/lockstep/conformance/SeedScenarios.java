package lockstep.conformance;

import java.util.List;
import java.util.concurrent.BlockingQueue;

import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** The life of a lock by the scripts of {@link SeedScripts}, with every reply asserted, through any client. */
public final class SeedScenarios {
    private static final long LEASE = 30_000;
    private static final long LONGER_LEASE = 90_000;

    private final ScriptClient client;

    public SeedScenarios(ScriptClient client) {
        this.client = client;
    }

    /** SET NX PX, then a compare-and-delete script from a stranger, from the owner, and after the fact. */
    public void compareAndDelete(String script) {
        String key = Names.key("seed-cad");
        String owner = Names.owner();
        assertTrue(client.setIfAbsent(key, owner, LEASE));
        assertFalse(client.setIfAbsent(key, "stranger", LEASE));
        assertEquals(0L, client.eval(script, List.of(key), List.of("stranger")));
        assertEquals(owner, read("get", key));
        assertBetween(1, LEASE, pttl(key), "PTTL after a refused release");
        assertEquals(1L, client.eval(script, List.of(key), List.of(owner)));
        assertEquals(0L, read("exists", key));
        assertEquals(0L, client.eval(script, List.of(key), List.of(owner)), "release of a lock that is gone");
        assertTrue(client.setIfAbsent(key, "next", LEASE));
        assertEquals(1L, client.eval(script, List.of(key), List.of("next")));
    }

    /** Taking, re-entering and being refused a hash lock. Leaves it held twice by the owner, who is returned. */
    public String reentrantLock(String script, String key) {
        String owner = Names.owner() + ":1";
        assertNull(lock(script, key, owner, LEASE), "the lock is free");
        assertEquals("1", read("hget", key, owner));
        assertBetween(1, LEASE, pttl(key), "PTTL of a new lock");
        Object left = lock(script, key, "stranger:2", LONGER_LEASE);
        assertBetween(1, LEASE, (Long) left, "the lease left, as told to a stranger");
        assertEquals(1L, read("hlen", key), "the stranger left no trace");
        assertBetween(1, LEASE, pttl(key), "PTTL after a stranger's attempt");
        assertNull(lock(script, key, owner, LONGER_LEASE), "the owner may enter again");
        assertEquals("2", read("hget", key, owner));
        assertBetween(LEASE + 1, LONGER_LEASE, pttl(key), "PTTL after re-entry");
        return owner;
    }

    /** The whole life of an early Redisson lock; its unlock message must come once, at the end. */
    public void rlock() throws Exception {
        String key = Names.key("seed-rlock");
        String channel = "redisson_lock__channel:{" + key + "}";
        BlockingQueue<String> messages = client.subscribe(channel);
        String owner = reentrantLock(SeedScripts.RLOCK_LOCK, key);
        assertNull(unlock(key, channel, "stranger", "stranger:2"), "not the owner");
        assertEquals("2", read("hget", key, owner));
        assertEquals(0L, unlock(key, channel, "early", owner), "held once more");
        assertEquals("1", read("hget", key, owner));
        assertBetween(1, LEASE, pttl(key), "PTTL after the inner unlock");
        assertEquals(1L, unlock(key, channel, "0", owner), "released");
        assertEquals(0L, read("exists", key));
        assertNull(unlock(key, channel, "late", owner), "released before");
        assertEquals("0", Wait.next(messages), "the first message is the one of the release");
        assertNull(lock(SeedScripts.RLOCK_LOCK, key, "stranger:2", LEASE));
        assertEquals(1L, unlock(key, channel, "again", "stranger:2"));
        assertEquals("again", Wait.next(messages), "and none but the next release's follows");
        assertTrue(messages.isEmpty());
    }

    private Object lock(String script, String key, String owner, long lease) {
        return client.eval(script, List.of(key), List.of(Long.toString(lease), owner));
    }

    private Object unlock(String key, String channel, String message, String owner) {
        return client.eval(SeedScripts.RLOCK_UNLOCK, List.of(key, channel),
                List.of(message, Long.toString(LEASE), owner));
    }

    private long pttl(String key) {
        return (Long) read("pttl", key);
    }

    /** Any reading command, sent as a script because that is the one thing every client here can send. */
    private Object read(String command, String key) {
        return client.eval("return redis.call('" + command + "', KEYS[1])", List.of(key), List.of());
    }

    private Object read(String command, String key, String field) {
        return client.eval("return redis.call('" + command + "', KEYS[1], ARGV[1])", List.of(key), List.of(field));
    }
}
