package lockstep.conformance.jedis;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;

import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** docs/locks.md on Jedis: LOCK.ACQUIRE and LOCK.RELEASE by its generic call. */
class JedisAcquireTest {
    /** For a lock that the test is to get. */
    private static final long WAIT = 20_000;

    private static UnifiedJedis pooled() {
        return Clients.pooled(Endpoints.first().host(), Endpoints.first().port());
    }

    @SuppressWarnings("unchecked")
    private static List<Long> acquire(UnifiedJedis jedis, String key, String owner, long wait) {
        ProtocolCommand acquire = () -> "LOCK.ACQUIRE".getBytes(StandardCharsets.UTF_8);
        List<Long> reply = (List<Long>) jedis.sendBlockingCommand(acquire, key, owner, "PX", "30000", "WAIT", String.valueOf(wait));
        return reply;
    }

    private static Long release(UnifiedJedis jedis, String key, String owner) {
        ProtocolCommand release = () -> "LOCK.RELEASE".getBytes(StandardCharsets.UTF_8);
        Long holds = (Long) jedis.sendCommand(release, key, owner);
        return holds;
    }

    private static void granted(UnifiedJedis jedis, String key, String owner, long wait) {
        List<Long> reply = acquire(jedis, key, owner, wait);
        assertEquals(3, reply.size());
        assertTrue(reply.get(0) > 0, "a token");
        assertBetween(1, 30_000, reply.get(1), "the time to live");
        assertEquals(1, reply.get(2));
    }

    /** Other servers than lockstep do not have the commands. */
    @BeforeEach
    void assumeAvailable() {
        try (UnifiedJedis jedis = pooled()) {
            release(jedis, "none", "nobody");
        } catch (JedisDataException e) {
            assumeFalse(System.getenv("LOCKSTEP_CONTROL") == null && e.getMessage().contains("unknown command"),
                    "the server has no LOCK.ACQUIRE");
            throw e;
        }
    }

    @Test
    void lockAcquireRepliesThreeIntegers() {
        try (UnifiedJedis jedis = pooled()) {
            String key = Names.key("acquire");
            granted(jedis, key, "me", 0);
            assertEquals(0, release(jedis, key, "me"));
        }
    }

    @Test
    void lockAcquireWaitsForTheRelease() throws Exception {
        try (UnifiedJedis first = pooled(); UnifiedJedis second = pooled()) {
            String key = Names.key("acquire");
            granted(first, key, "first", 0);
            long begin = System.nanoTime();
            Future<Duration> waiting = Wait.start(() -> {
                granted(second, key, "second", WAIT);
                return Wait.since(begin);
            });
            Thread.sleep(250);
            assertEquals(0, release(first, key, "first"));
            Wait.assertAtLeast(Duration.ofMillis(250), waiting.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS), "granted");
            assertEquals(0, release(second, key, "second"));
        }
    }

    @Test
    void lockAcquireInVainRepliesNull() {
        try (UnifiedJedis first = pooled(); UnifiedJedis second = pooled()) {
            String key = Names.key("acquire");
            granted(first, key, "first", 0);
            long begin = System.nanoTime();
            assertNull(acquire(second, key, "second", 200));
            Wait.assertAtLeast(Duration.ofMillis(200), Wait.since(begin), "refused");
            assertNull(release(second, key, "second"));
            assertEquals(0, release(first, key, "first"));
        }
    }

    @Test
    void lockAcquireRefusesADeadlock() {
        try (UnifiedJedis jedis = pooled()) {
            String key = Names.key("acquire");
            granted(jedis, key, "me", 0);
            JedisDataException refusal = assertThrows(JedisDataException.class, () -> acquire(jedis, key, "me", WAIT));
            assertTrue(refusal.getMessage().startsWith("DEADLOCK "), refusal::getMessage);
            assertEquals(0, release(jedis, key, "me"));
        }
    }
}
