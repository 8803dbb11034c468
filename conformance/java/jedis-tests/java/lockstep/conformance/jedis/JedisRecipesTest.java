package lockstep.conformance.jedis;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.SeedScripts;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.SetParams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Locks and semaphores as people write them on Jedis without a library. */
class JedisRecipesTest {
    private static final Endpoint FIRST = Endpoints.first();

    private static Jedis connect() {
        return new Jedis(FIRST.host(), FIRST.port());
    }

    private static UnifiedJedis pooled() {
        return Clients.pooled(FIRST.host(), FIRST.port());
    }

    private static void lock(Jedis jedis, String key, String owner, long milliseconds) {
        assertEquals("OK", jedis.set(key, owner, SetParams.setParams().nx().px(milliseconds)));
    }

    /** EVALSHA, and the script itself only when the server does not have it. */
    @Test
    void setNxPxAndScript() {
        try (UnifiedJedis owner = pooled(); UnifiedJedis other = pooled()) {
            String key = Names.key("lock");
            String unlock = SeedScripts.COMPARE_AND_DELETE + " -- " + key;
            assertEquals("OK", owner.set(key, "mine", SetParams.setParams().nx().px(30_000)));
            assertNull(other.set(key, "theirs", SetParams.setParams().nx().px(30_000)));
            String sha = owner.scriptLoad(unlock, key);
            assertEquals(0L, other.evalsha(sha, 1, key, "theirs"));
            assertEquals("mine", owner.get(key));
            assertEquals(1L, owner.evalsha(sha, 1, key, "mine"));
            assertFalse(owner.exists(key));
            String unknown = "0123456789012345678901234567890123456789";
            assertThrows(JedisNoScriptException.class, () -> owner.evalsha(unknown, 1, key, "mine"));
        }
    }

    @Test
    void watchAndMultiUnlock() {
        try (Jedis jedis = connect()) {
            String key = Names.key("lock");
            lock(jedis, key, "mine", 30_000);
            assertEquals("OK", jedis.watch(key));
            assertEquals("mine", jedis.get(key));
            Transaction unlock = jedis.multi();
            unlock.del(key);
            assertEquals(List.of(1L), unlock.exec());
            assertFalse(jedis.exists(key));
        }
    }

    @Test
    void watchAndMultiUnlockOfALockThatWasTakenOver() {
        try (Jedis jedis = connect(); Jedis other = connect()) {
            String key = Names.key("lock");
            lock(jedis, key, "mine", 30_000);
            jedis.watch(key);
            assertEquals("mine", jedis.get(key));
            other.set(key, "theirs", SetParams.setParams().px(30_000));
            Transaction unlock = jedis.multi();
            unlock.del(key);
            assertNull(unlock.exec());
            assertEquals("theirs", jedis.get(key));
            jedis.watch(key);
            assertEquals("OK", jedis.unwatch());
            other.del(key);
            Transaction again = jedis.multi();
            again.del(key);
            assertEquals(List.of(0L), again.exec(), "nothing is watched any more");
        }
    }

    @Test
    void watchNoticesThatTheLockExpired() throws Exception {
        try (Jedis jedis = connect(); Jedis other = connect()) {
            String key = Names.key("lock");
            lock(jedis, key, "mine", 1500);
            jedis.watch(key);
            assertEquals("mine", jedis.get(key));
            Wait.until("the lock has expired", () -> !other.exists(key));
            Transaction unlock = jedis.multi();
            unlock.del(key);
            assertNull(unlock.exec());
        }
    }

    @Test
    void aTransactionWithAnUnknownCommandIsDiscarded() {
        try (Jedis jedis = connect()) {
            String key = Names.key("lock");
            lock(jedis, key, "mine", 30_000);
            Transaction unlock = jedis.multi();
            unlock.del(key);
            ProtocolCommand unknown = () -> "NOSUCHCOMMAND".getBytes(StandardCharsets.US_ASCII);
            unlock.sendCommand(unknown, key);
            JedisDataException refused = assertThrows(JedisDataException.class, unlock::exec);
            assertTrue(refused.getMessage().startsWith("EXECABORT "), refused.getMessage());
            assertEquals("mine", jedis.get(key));
        }
    }

    /** A list holds the permits: BLPOP takes one, RPUSH gives it back. */
    @Test
    void blpopSemaphore() throws Exception {
        try (Jedis jedis = connect(); Jedis other = connect()) {
            String key = Names.key("semaphore");
            jedis.rpush(key, "permit-1", "permit-2");
            assertEquals(List.of(key, "permit-1"), jedis.blpop(1, key));
            assertEquals(List.of(key, "permit-2"), jedis.blpop(1, key));
            assertNull(jedis.blpop(1, key));
            Future<List<String>> waiting = Wait.start(() -> other.blpop(60, key));
            Thread.sleep(200);
            assertFalse(waiting.isDone());
            jedis.rpush(key, "permit-1");
            assertEquals(List.of(key, "permit-1"), waiting.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS));
            assertEquals(0, jedis.llen(key));
        }
    }

    /** Who came first is served first. */
    @Test
    void blpopSemaphoreIsFair() throws Exception {
        String key = Names.key("semaphore");
        List<Jedis> clients = new ArrayList<>();
        try (Jedis jedis = connect()) {
            List<Future<List<String>>> waiting = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Jedis client = connect();
                clients.add(client);
                client.ping();
                waiting.add(Wait.start(() -> client.blpop(60, key)));
                Thread.sleep(300);
            }
            jedis.rpush(key, "first", "second", "third");
            List<String> got = new ArrayList<>();
            for (Future<List<String>> waiter : waiting) {
                got.add(waiter.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS).get(1));
            }
            assertEquals(List.of("first", "second", "third"), got);
        } finally {
            clients.forEach(Jedis::close);
        }
    }

    /** notify-keyspace-events: a waiter sleeps until the server says that the lock has ended. */
    @Test
    void listenerToTheExpiryOfALock() throws Exception {
        try (Jedis jedis = connect()) {
            assertEquals("OK", jedis.configSet("notify-keyspace-events", "Egx"), "as other suites set it");
            String key = Names.key("lock");
            try (Listener listener = Listener.toPattern(FIRST, "__keyevent@*__:expired")) {
                long start = System.nanoTime();
                lock(jedis, key, "mine", 700);
                String expired = "__keyevent@0__:expired=" + key;
                // Other tests' keys expire, too.
                String message = Wait.next(listener.messages());
                while (!message.equals(expired)) {
                    message = Wait.next(listener.messages());
                }
                Wait.assertAtLeast(Duration.ofMillis(700), Wait.since(start), "expired");
                lock(jedis, key, "next", 1000);
            }
        }
    }
}
