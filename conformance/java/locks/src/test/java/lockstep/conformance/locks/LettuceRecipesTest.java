package lockstep.conformance.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.SeedScripts;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Locks and semaphores as people write them on Lettuce without a library. */
class LettuceRecipesTest {
    private static final Map<Resp, RedisClient> CLIENTS = new EnumMap<>(Resp.class);

    /** Lettuce's two protocols. */
    enum Resp implements Subject {
        RESP2, RESP3;

        @Override
        public String client() {
            return "Lettuce recipes";
        }

        @Override
        public String version() {
            return LettuceCases.VERSION;
        }

        @Override
        public String mode() {
            return "plain " + this;
        }

        RedisClient redis() {
            synchronized (CLIENTS) {
                return CLIENTS.computeIfAbsent(this, protocol -> {
                    RedisClient client = RedisClient.create(LettuceCases.RESOURCES, LettuceCases.uri(Endpoints.first()));
                    client.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.valueOf(name())).build());
                    return client;
                });
            }
        }

        /** A connection of its own. */
        RedisCommands<String, String> connect() {
            return redis().connect().sync();
        }
    }

    @AfterAll
    static void close() {
        CLIENTS.values().forEach(client -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2)));
    }

    private static void lock(RedisCommands<String, String> redis, String key, String owner, long milliseconds) {
        assertEquals("OK", redis.set(key, owner, SetArgs.Builder.nx().px(milliseconds)));
    }

    @ParameterizedTest
    @EnumSource
    void setNxPxAndScript(Resp resp) {
        RedisCommands<String, String> redis = resp.connect();
        String key = Names.key("lock");
        String unlock = SeedScripts.COMPARE_AND_DELETE + " -- " + key;
        String[] keys = {key};
        lock(redis, key, "mine", 30_000);
        assertNull(redis.set(key, "theirs", SetArgs.Builder.nx().px(30_000)));
        assertThrows(RedisNoScriptException.class,
                () -> redis.evalsha(redis.digest(unlock), ScriptOutputType.INTEGER, keys, "mine"));
        String sha = redis.scriptLoad(unlock);
        assertEquals(redis.digest(unlock), sha);
        assertEquals(0L, redis.<Long>evalsha(sha, ScriptOutputType.INTEGER, keys, "theirs"));
        assertEquals(1L, redis.<Long>evalsha(sha, ScriptOutputType.INTEGER, keys, "mine"));
        assertEquals(0, redis.exists(key));
    }

    @ParameterizedTest
    @EnumSource
    void watchAndMultiUnlock(Resp resp) {
        RedisCommands<String, String> redis = resp.connect();
        String key = Names.key("lock");
        lock(redis, key, "mine", 30_000);
        redis.watch(key);
        assertEquals("mine", redis.get(key));
        redis.multi();
        assertNull(redis.del(key), "queued");
        TransactionResult done = redis.exec();
        assertFalse(done.wasDiscarded());
        assertEquals(1L, done.<Long>get(0));
        assertEquals(0, redis.exists(key));
    }

    @ParameterizedTest
    @EnumSource
    void watchAndMultiUnlockOfALockThatWasTakenOver(Resp resp) {
        RedisCommands<String, String> redis = resp.connect();
        String key = Names.key("lock");
        lock(redis, key, "mine", 30_000);
        redis.watch(key);
        assertEquals("mine", redis.get(key));
        resp.connect().set(key, "theirs", SetArgs.Builder.px(30_000));
        redis.multi();
        redis.del(key);
        assertTrue(redis.exec().wasDiscarded());
        assertEquals("theirs", redis.get(key));
        redis.del(key);
    }

    /** A list holds the permits, and who came first is served first. */
    @ParameterizedTest
    @EnumSource
    void blpopSemaphore(Resp resp) throws Exception {
        RedisCommands<String, String> redis = resp.connect();
        String key = Names.key("semaphore");
        redis.rpush(key, "permit-1");
        assertEquals(KeyValue.just(key, "permit-1"), redis.blpop(1, key));
        assertNull(redis.blpop(1, key));
        List<RedisFuture<KeyValue<String, String>>> waiting = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            var client = resp.redis().connect().async();
            client.ping().get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS);
            waiting.add(client.blpop(60, key));
            Thread.sleep(300);
            assertFalse(waiting.get(i).isDone());
        }
        redis.rpush(key, "first", "second", "third");
        List<String> got = new ArrayList<>();
        for (var waiter : waiting) {
            got.add(waiter.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS).getValue());
        }
        assertEquals(List.of("first", "second", "third"), got);
        assertEquals(0, redis.llen(key));
    }

    /** notify-keyspace-events: a waiter sleeps until the server says that the lock has ended. */
    @ParameterizedTest
    @EnumSource
    void listenerToTheExpiryOfALock(Resp resp) throws Exception {
        RedisCommands<String, String> redis = resp.connect();
        assertEquals("OK", redis.configSet("notify-keyspace-events", "Egx"), "as other suites set it");
        String key = Names.key("lock");
        BlockingQueue<String> expired = new LinkedBlockingQueue<>();
        StatefulRedisPubSubConnection<String, String> events = resp.redis().connectPubSub();
        events.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String pattern, String channel, String message) {
                if (message.equals(key)) {
                    expired.add(channel);
                }
            }
        });
        events.sync().psubscribe("__keyevent@*__:expired");
        long start = System.nanoTime();
        lock(redis, key, "mine", 700);
        assertEquals("__keyevent@0__:expired", Wait.next(expired));
        Wait.assertAtLeast(Duration.ofMillis(700), Wait.since(start), "expired");
        lock(redis, key, "next", 1000);
    }
}
