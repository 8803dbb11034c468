package lockstep.conformance.jedis;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;

import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** The commands that locks are made of, through a single connection, a pool and a pooled client. */
class JedisCommandsTest {
    private static final Endpoint FIRST = Endpoints.first();

    private static Jedis connect() {
        return new Jedis(FIRST.host(), FIRST.port());
    }

    private static UnifiedJedis pooled() {
        return Clients.pooled(FIRST.host(), FIRST.port());
    }

    private static SetParams params() {
        return SetParams.setParams();
    }

    @Test
    void setWithEveryCondition() {
        try (Jedis jedis = connect()) {
            String key = Names.key("set");
            assertNull(jedis.set(key, "a", params().xx().px(60_000)), "XX on an absent key");
            assertEquals("OK", jedis.set(key, "b", params().nx().px(60_000)));
            assertNull(jedis.set(key, "c", params().nx().px(60_000)), "NX on a present key");
            assertBetween(1, 60_000, jedis.pttl(key), "PTTL");
            assertEquals("OK", jedis.set(key, "d", params().xx().keepttl()));
            assertBetween(1, 60_000, jedis.pttl(key), "PTTL kept");
            assertEquals("d", jedis.setGet(key, "e", params().ex(120)));
            assertBetween(60_001, 120_000, jedis.pttl(key), "PTTL of a new deadline");
            assertEquals("OK", jedis.set(key, "f"));
            assertEquals(-1, jedis.pttl(key), "a plain SET takes the deadline away");
            assertEquals("f", jedis.get(key));
            assertEquals(1, jedis.del(key));
            assertEquals(0, jedis.del(key));
        }
    }

    /** NX before EX or PX, as calls of the old five-argument set() put them on the wire. */
    @Test
    void setInTheWordOrderOfOldClients() {
        try (Jedis jedis = connect()) {
            String key = Names.key("set-old");
            assertArrayEquals(bytes("OK"),
                    (byte[]) jedis.sendCommand(Protocol.Command.SET, key, "me", "NX", "EX", "100"));
            assertNull(jedis.sendCommand(Protocol.Command.SET, key, "you", "NX", "PX", "30000"));
            assertBetween(1, 100, jedis.ttl(key), "TTL");
            assertEquals(1, jedis.del(key));
            assertArrayEquals(bytes("OK"),
                    (byte[]) jedis.sendCommand(Protocol.Command.SET, key, "me", "nx", "px", "60000"));
            assertBetween(1, 60_000, jedis.pttl(key), "PTTL");
            assertEquals(1, jedis.del(key));
        }
    }

    /** The commands of seed 001, in its order. */
    @Test
    void setnxExpireGetset() {
        try (UnifiedJedis jedis = pooled()) {
            String key = Names.key("lock.user_063105015");
            assertEquals(1, jedis.setnx(key, "1"));
            assertEquals(0, jedis.setnx(key, "1"));
            assertEquals("1", jedis.get(key));
            assertNull(jedis.get(Names.key("lock.user_123456789")));
            assertEquals("1", jedis.getSet(key, "0"));
            assertEquals("0", jedis.getSet(key, "1"));
            assertEquals(-1, jedis.ttl(key));
            assertEquals(1, jedis.expire(key, 120));
            assertBetween(1, 120, jedis.ttl(key), "TTL");
            assertEquals(1, jedis.persist(key));
            assertEquals(-1, jedis.ttl(key));
            assertEquals(1, jedis.pexpire(key, 500));
            assertEquals(1, jedis.del(key));
            assertEquals(0, jedis.expire(key, 120), "EXPIRE of an absent key");
            assertEquals(-2, jedis.ttl(key));
        }
    }

    @Test
    void aKeyIsGoneAfterItsDeadline() throws Exception {
        try (Jedis jedis = connect()) {
            String key = Names.key("deadline");
            long start = System.nanoTime();
            jedis.psetex(key, 300, "v");
            Wait.until("the key has expired", () -> !jedis.exists(key));
            Wait.assertAtLeast(Duration.ofMillis(300), Wait.since(start), "expired");
            assertNull(jedis.get(key));
            assertEquals(0, jedis.del(key));
        }
    }

    @Test
    void hashes() {
        try (UnifiedJedis jedis = pooled()) {
            String key = Names.key("hash");
            assertEquals(1, jedis.hset(key, "owner:1", "1"));
            assertEquals(2, jedis.hincrBy(key, "owner:1", 1));
            assertTrue(jedis.hexists(key, "owner:1"));
            assertFalse(jedis.hexists(key, "owner:2"));
            assertEquals(1, jedis.hset(key, Map.of("owner:2", "5")));
            assertEquals(Map.of("owner:1", "2", "owner:2", "5"), jedis.hgetAll(key));
            assertEquals(Set.of("owner:1", "owner:2"), jedis.hkeys(key));
            assertEquals(2, jedis.hlen(key));
            assertEquals(1, jedis.hdel(key, "owner:2", "owner:3"));
            assertEquals("hash", jedis.type(key));
            assertEquals(1, jedis.hdel(key, "owner:1"));
            assertFalse(jedis.exists(key), "a hash without fields is no key");
        }
    }

    @Test
    void keysAndValuesAreBytes() {
        try (Jedis jedis = connect()) {
            byte[] key = bytes(Names.key("binary") + "\u0000\r\n\u00e9");
            byte[] value = new byte[256];
            for (int i = 0; i < value.length; i++) {
                value[i] = (byte) i;
            }
            assertEquals("OK", jedis.set(key, value, params().nx().ex(60)));
            assertArrayEquals(value, jedis.get(key));
            byte[] script = bytes("if redis.call('get', KEYS[1]) == ARGV[1] then return ARGV[1] else return 0 end");
            assertArrayEquals(value, (byte[]) jedis.eval(script, List.of(key), List.of(value)));
            assertEquals(1, jedis.del(key));
        }
    }

    @Test
    void wrongTypeIsAnErrorAlsoOutOfAScript() {
        try (Jedis jedis = connect()) {
            String key = Names.key("type");
            jedis.set(key, "a string", params().ex(60));
            JedisDataException plain = assertThrows(JedisDataException.class, () -> jedis.hget(key, "f"));
            assertEquals("WRONGTYPE Operation against a key holding the wrong kind of value", plain.getMessage());
            JedisDataException script = assertThrows(JedisDataException.class,
                    () -> jedis.eval("return redis.call('hget', KEYS[1], 'f')", 1, key));
            assertTrue(script.getMessage().startsWith("WRONGTYPE Operation against a key"), script.getMessage());
            assertEquals("a string", jedis.get(key), "the connection is still in step");
        }
    }

    @Test
    void databasesAreSeparate() {
        try (Jedis zero = connect(); Jedis three = connect()) {
            String key = Names.key("database");
            assertEquals("OK", three.select(3));
            zero.set(key, "zero", params().ex(60));
            assertNull(three.get(key));
            three.set(key, "three", params().ex(60));
            assertEquals("zero", zero.get(key));
            assertEquals("three", three.get(key));
        }
    }

    @Test
    void aPipelineAnswersInOrder() {
        try (Jedis jedis = connect()) {
            String key = Names.key("pipeline");
            List<Response<Long>> replies = new ArrayList<>();
            Pipeline pipeline = jedis.pipelined();
            Response<String> set = pipeline.set(key, "0", params().nx().ex(60));
            for (int i = 0; i < 200; i++) {
                replies.add(pipeline.incr(key));
            }
            Response<Object> last = pipeline.eval("return redis.call('get', KEYS[1])", 1, key);
            pipeline.sync();
            assertEquals("OK", set.get());
            for (int i = 0; i < 200; i++) {
                assertEquals(i + 1, replies.get(i).get());
            }
            assertEquals("200", last.get());
        }
    }

    @Test
    @SuppressWarnings("deprecation") // The newest Jedis prefers another pool; programs in use have this one.
    void aPoolServesMoreThreadsThanItHasConnections() throws Exception {
        JedisPoolConfig config = new JedisPoolConfig();
        config.setMaxTotal(4);
        config.setTestOnBorrow(true);
        try (JedisPool pool = new JedisPool(config, FIRST.host(), FIRST.port())) {
            String key = Names.key("pool");
            List<Future<Void>> threads = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                threads.add(Wait.start(() -> {
                    for (int round = 0; round < 10; round++) {
                        try (Jedis jedis = pool.getResource()) {
                            jedis.incr(key);
                        }
                    }
                    return null;
                }));
            }
            for (Future<Void> thread : threads) {
                thread.get(60, TimeUnit.SECONDS);
            }
            try (Jedis jedis = pool.getResource()) {
                assertEquals("PONG", jedis.ping());
                assertEquals("100", jedis.get(key));
                assertEquals(1, jedis.del(key));
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
