package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Stream;
import lockstep.conformance.Names;
import lockstep.conformance.ScriptClient;
import lockstep.conformance.SeedScenarios;
import lockstep.conformance.SeedScripts;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.redisson.api.RScript;
import org.redisson.api.RScript.Mode;
import org.redisson.api.RScript.ReturnType;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** RScript: the seeds' scripts as they stand, by EVAL and by EVALSHA, and what Redisson makes of replies. */
@ExtendWith(Redissons.class)
class ScriptTest {
    private static RScript script(RedissonClient client) {
        return client.getScript(StringCodec.INSTANCE);
    }

    /** Redisson behind {@link ScriptClient}. */
    private record RedissonScriptClient(RedissonClient client, boolean bySha) implements ScriptClient {
        @Override
        public Object eval(String text, List<String> keys, List<String> args) {
            RScript script = script(client);
            List<Object> names = List.copyOf(keys);
            if (bySha) {
                String sha = script.scriptLoad(text);
                return script.evalSha(Mode.READ_WRITE, sha, ReturnType.VALUE, names, args.toArray());
            }
            return script.eval(Mode.READ_WRITE, text, ReturnType.VALUE, names, args.toArray());
        }

        @Override
        public boolean setIfAbsent(String key, String value, long milliseconds) {
            return client.<String>getBucket(key, StringCodec.INSTANCE)
                    .setIfAbsent(value, Duration.ofMillis(milliseconds));
        }

        @Override
        public BlockingQueue<String> subscribe(String channel) {
            BlockingQueue<String> messages = new LinkedBlockingQueue<>();
            RTopic topic = client.getTopic(channel, StringCodec.INSTANCE);
            topic.addListener(String.class, (unused, message) -> messages.add(message));
            return messages;
        }

        @Override
        public void close() {
            // The client is shared by all tests, and its subscriptions end with it.
        }
    }

    private static SeedScenarios scenarios(boolean bySha) {
        return new SeedScenarios(new RedissonScriptClient(Redissons.owner(), bySha));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void compareAndDelete(boolean bySha) {
        Stream.of(SeedScripts.COMPARE_AND_DELETE_EXPLAINED, SeedScripts.COMPARE_AND_DELETE,
                SeedScripts.COMPARE_AND_DELETE_QUOTED).forEach(scenarios(bySha)::compareAndDelete);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void reentrantLock(boolean bySha) {
        scenarios(bySha).reentrantLock(SeedScripts.REENTRANT_LOCK, Names.key("seed-reentrant"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void rlock(boolean bySha) throws Exception {
        scenarios(bySha).rlock();
    }

    @Test
    void returnTypes() {
        RScript script = script(Redissons.owner());
        assertEquals(5L, script.<Long>eval(Mode.READ_WRITE, "return 5", ReturnType.LONG));
        assertEquals(true, script.<Boolean>eval(Mode.READ_WRITE, "return 1", ReturnType.BOOLEAN));
        assertEquals(false, script.<Boolean>eval(Mode.READ_WRITE, "return 0", ReturnType.BOOLEAN));
        assertEquals("text", script.<String>eval(Mode.READ_WRITE, "return 'text'", ReturnType.VALUE));
        assertNull(script.<Long>eval(Mode.READ_WRITE, "return nil", ReturnType.LONG));
        assertEquals(Arrays.asList(1L, "two", null),
                script.<List<Object>>eval(Mode.READ_WRITE, "return {1, 'two', false}", ReturnType.LIST));
        assertEquals("text", script.<String>eval(Mode.READ_ONLY, "return 'text'", ReturnType.VALUE));
    }

    @Test
    void aScriptLoadedThroughOneNodeRunsOnTheOthers() {
        String text = "return ARGV[1] -- " + Names.owner();
        String sha = script(Redissons.node(0)).scriptLoad(text);
        for (int node = 0; node < 3; node++) {
            RScript script = script(Redissons.node(node));
            assertEquals(List.of(true), script.scriptExists(sha));
            assertEquals("x", script.<String>evalSha(Mode.READ_WRITE, sha, ReturnType.VALUE, List.of(), "x"));
        }
    }

    @Test
    void errorsReachTheCaller() {
        RScript script = script(Redissons.owner());
        String key = Names.key("error");
        assertTrue(new RedissonScriptClient(Redissons.owner(), false).setIfAbsent(key, "a string", 60_000));
        RedisException wrongType = assertThrows(RedisException.class, () -> script.eval(Mode.READ_WRITE,
                SeedScripts.RLOCK_LOCK, ReturnType.LONG, List.of(key), "30000", "me"));
        assertTrue(wrongType.getMessage().contains("WRONGTYPE Operation against a key holding the wrong kind of value"),
                wrongType.getMessage());
        RedisException own = assertThrows(RedisException.class, () -> script.eval(Mode.READ_WRITE,
                "return redis.error_reply('MYCODE my words')", ReturnType.VALUE));
        assertTrue(own.getMessage().contains("MYCODE my words"), own.getMessage());
    }

    @Test
    void aTopicReachesSubscribersOfEveryNode() throws Exception {
        String channel = Names.key("topic");
        List<BlockingQueue<String>> queues = Stream.of(0, 1, 2)
                .map(i -> new RedissonScriptClient(Redissons.node(i), false).subscribe(channel)).toList();
        for (int i = 0; i < 10; i++) {
            Redissons.node(i % 3).getTopic(channel, StringCodec.INSTANCE).publish("message " + i);
        }
        for (BlockingQueue<String> queue : queues) {
            for (int i = 0; i < 10; i++) {
                assertEquals("message " + i, Wait.next(queue));
            }
        }
    }
}
