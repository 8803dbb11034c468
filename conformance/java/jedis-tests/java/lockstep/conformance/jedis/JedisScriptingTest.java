package lockstep.conformance.jedis;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.SeedScripts;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.SetParams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** EVAL, EVALSHA, SCRIPT and messages, the parts of locks that go beyond plain commands. */
class JedisScriptingTest {
    private static final Endpoint FIRST = Endpoints.first();

    private static Jedis connect(Endpoint endpoint) {
        return new Jedis(endpoint.host(), endpoint.port());
    }

    @Test
    void evalTakesKeysAndArgumentsInEitherForm() {
        String script = "return {KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV}";
        List<Object> want = Arrays.asList("k1", "k2", "a1", 2L, 1L);
        try (Jedis jedis = connect(FIRST); UnifiedJedis pooled = Clients.pooled(FIRST.host(), FIRST.port())) {
            assertEquals(want, jedis.eval(script, 2, "k1", "k2", "a1"));
            assertEquals(want, jedis.eval(script, List.of("k1", "k2"), List.of("a1")));
            assertEquals(want, pooled.eval(script, 2, "k1", "k2", "a1"));
            assertEquals(want, pooled.eval(script, List.of("k1", "k2"), List.of("a1")));
            assertEquals(want, jedis.evalReadonly(script, List.of("k1", "k2"), List.of("a1")));
        }
    }

    @Test
    void luaValuesBecomeReplies() {
        try (Jedis jedis = connect(FIRST)) {
            assertNull(jedis.eval("return nil"));
            assertNull(jedis.eval("return false"));
            assertNull(jedis.eval("local unused = 1"));
            assertEquals(1L, jedis.eval("return true"));
            assertEquals(3L, jedis.eval("return 3.99"));
            assertEquals(-3L, jedis.eval("return -3.99"));
            assertEquals("3.99", jedis.eval("return tostring(3.99)"));
            assertEquals("fine", jedis.eval("return redis.status_reply('fine')"));
            assertEquals(List.of(1L, "two", List.of(3L)), jedis.eval("return {1, 'two', {3}, nil, 5}"));
        }
    }

    @Test
    void scriptLoadGivesTheSha1ThatEvalshaTakes() throws Exception {
        try (Jedis jedis = connect(FIRST)) {
            String script = unique("return redis.call('set', KEYS[1], ARGV[1], 'px', 60000)");
            String sha = sha1(script);
            assertFalse(jedis.scriptExists(sha));
            JedisNoScriptException unknown = assertThrows(JedisNoScriptException.class,
                    () -> jedis.evalsha(sha, 1, Names.key("evalsha"), "v"));
            assertEquals("NOSCRIPT No matching script. Please use EVAL.", unknown.getMessage());
            assertEquals(sha, jedis.scriptLoad(script));
            assertTrue(jedis.scriptExists(sha));
            String key = Names.key("evalsha");
            assertEquals("OK", jedis.evalsha(sha, 1, key, "v"));
            assertEquals("OK", jedis.evalsha(sha, List.of(key), List.of("w")));
            assertEquals("w", jedis.get(key));
            assertEquals(List.of(true, false), jedis.scriptExists(sha, sha1(unique("never seen"))));
        }
    }

    @Test
    void evalIsEnoughForEvalshaToKnowAScriptOnEveryNode() throws Exception {
        String script = unique("return ARGV[1]");
        try (Jedis a = connect(Endpoints.node(0)); Jedis b = connect(Endpoints.node(1));
                Jedis c = connect(Endpoints.node(2))) {
            assertEquals("1", a.eval(script, 0, "1"));
            assertEquals("2", b.evalsha(sha1(script), 0, "2"));
            assertEquals("3", c.evalsha(sha1(script), 0, "3"));
        }
    }

    @Test
    void aScriptThatFailsSaysWhy() {
        try (Jedis jedis = connect(FIRST)) {
            String key = Names.key("failing");
            JedisDataException compile = assertThrows(JedisDataException.class, () -> jedis.eval("retrun 1"));
            assertTrue(compile.getMessage().startsWith("ERR Error compiling script (new function): "),
                    compile.getMessage());
            JedisDataException arity = assertThrows(JedisDataException.class,
                    () -> jedis.eval("return redis.call('get')"));
            assertTrue(arity.getMessage().startsWith("ERR Wrong number of args calling Redis command from script"),
                    arity.getMessage());
            JedisDataException unknown = assertThrows(JedisDataException.class,
                    () -> jedis.eval("return redis.call('nosuchcommand')"));
            assertTrue(unknown.getMessage().startsWith("ERR Unknown Redis command called from script"),
                    unknown.getMessage());
            JedisDataException own = assertThrows(JedisDataException.class,
                    () -> jedis.eval("return redis.error_reply('MYCODE my words')"));
            assertEquals("MYCODE my words", own.getMessage());
            assertThrows(JedisDataException.class, () -> jedis.eval(
                    "redis.call('set', KEYS[1], 'v', 'ex', 60) error('after the write')", 1, key));
            assertEquals("v", jedis.get(key), "what a failing script wrote before it failed stays, as in Redis");
        }
    }

    @Test
    void messagesReachSubscribersFromCommandsAndScripts() throws Exception {
        String channel = Names.key("channel");
        try (Jedis jedis = connect(FIRST); Listener listener = Listener.to(FIRST, channel);
                Listener pattern = Listener.toPattern(FIRST, channel.substring(0, channel.length() - 1) + "*")) {
            jedis.publish(channel, "plain");
            jedis.eval("return redis.call('publish', KEYS[1], ARGV[1])", 1, channel, "scripted");
            assertEquals("plain", Wait.next(listener.messages()));
            assertEquals("scripted", Wait.next(listener.messages()));
            assertEquals(channel + "=plain", Wait.next(pattern.messages()));
            assertEquals(channel + "=scripted", Wait.next(pattern.messages()));
        }
    }

    /** Published through each node, received on each node, in the order of publishing. */
    @Test
    void anUnlockMessageCrossesNodes() throws Exception {
        String key = Names.key("crossing");
        String channel = "redisson_lock__channel:{" + key + "}";
        try (Jedis a = connect(Endpoints.node(0)); Jedis b = connect(Endpoints.node(1));
                Listener onA = Listener.to(Endpoints.node(0), channel);
                Listener onB = Listener.to(Endpoints.node(1), channel);
                Listener onC = Listener.to(Endpoints.node(2), channel)) {
            for (int round = 0; round < 10; round++) {
                Jedis owner = round % 2 == 0 ? a : b;
                assertNull(owner.eval(SeedScripts.RLOCK_LOCK, 1, key, "30000", "me:1"));
                assertEquals(1L, owner.eval(SeedScripts.RLOCK_UNLOCK, 2, key, channel, "" + round, "30000", "me:1"));
            }
            for (int round = 0; round < 10; round++) {
                assertEquals("" + round, Wait.next(onA.messages()));
                assertEquals("" + round, Wait.next(onB.messages()));
                assertEquals("" + round, Wait.next(onC.messages()));
            }
        }
    }

    @Test
    void whatWasWrittenThroughOneNodeIsReadThroughAnother() {
        String key = Names.key("linear");
        try (Jedis a = connect(Endpoints.node(0)); Jedis b = connect(Endpoints.node(1));
                Jedis c = connect(Endpoints.node(2))) {
            for (int round = 0; round < 50; round++) {
                assertEquals("OK", a.set(key, "a" + round, SetParams.setParams().ex(60)));
                assertEquals("a" + round, b.get(key));
                assertEquals("a" + round, c.eval("return redis.call('get', KEYS[1])", 1, key));
                assertEquals("OK", c.set(key, "c" + round, SetParams.setParams().xx().keepttl()));
                assertEquals("c" + round, a.get(key));
            }
        }
    }

    /** A script that no one has sent before. */
    private static String unique(String script) {
        return script + " -- " + Names.owner();
    }

    private static String sha1(String script) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-1").digest(script.getBytes(StandardCharsets.UTF_8));
        return HexFormat.of().formatHex(digest);
    }
}
