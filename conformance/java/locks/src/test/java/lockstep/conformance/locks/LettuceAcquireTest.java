package lockstep.conformance.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerListOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** docs/locks.md on Lettuce: LOCK.ACQUIRE and LOCK.RELEASE by its generic call. */
class LettuceAcquireTest {
    /** For a lock that the test is to get. */
    private static final long WAIT = 20_000;
    private static final Map<Resp, RedisClient> CLIENTS = new EnumMap<>(Resp.class);

    /** Lettuce's two protocols. */
    enum Resp implements Subject {
        RESP2, RESP3;

        @Override
        public String client() {
            return "Lettuce LOCK.ACQUIRE";
        }

        @Override
        public String version() {
            return LettuceCases.VERSION;
        }

        @Override
        public String mode() {
            return "plain " + this;
        }

        private RedisClient redis() {
            synchronized (CLIENTS) {
                return CLIENTS.computeIfAbsent(this, protocol -> {
                    RedisClient client = RedisClient.create(LettuceCases.RESOURCES, LettuceCases.uri(Endpoints.first()));
                    client.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.valueOf(name())).build());
                    return client;
                });
            }
        }

        /** A connection of its own. The test is skipped if the server does not have the commands, as others than lockstep. */
        StatefulRedisConnection<String, String> connect() {
            StatefulRedisConnection<String, String> connection = redis().connect();
            long wait = WAIT;
            connection.setTimeout(Duration.ofMillis(wait + 5000));
            try {
                release(connection, "none", "nobody");
            } catch (RedisCommandExecutionException e) {
                assumeFalse(System.getenv("LOCKSTEP_CONTROL") == null && e.getMessage().contains("unknown command"),
                        "the server has no LOCK.ACQUIRE");
                throw e;
            }
            return connection;
        }
    }

    @AfterAll
    static void close() {
        CLIENTS.values().forEach(client -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2)));
    }

    private static List<Long> acquire(StatefulRedisConnection<String, String> connection, String key, String owner, long wait) {
        ProtocolKeyword acquire = () -> "LOCK.ACQUIRE".getBytes(StandardCharsets.UTF_8);
        var args = new CommandArgs<>(StringCodec.UTF8).addKey(key).add(owner).add("PX").add(30000).add("WAIT").add(wait);
        List<Long> reply = connection.sync().dispatch(acquire, new IntegerListOutput<>(StringCodec.UTF8), args);
        return reply;
    }

    private static Long release(StatefulRedisConnection<String, String> connection, String key, String owner) {
        ProtocolKeyword release = () -> "LOCK.RELEASE".getBytes(StandardCharsets.UTF_8);
        var args = new CommandArgs<>(StringCodec.UTF8).addKey(key).add(owner);
        Long holds = connection.sync().dispatch(release, new IntegerOutput<>(StringCodec.UTF8), args);
        return holds;
    }

    private static void granted(StatefulRedisConnection<String, String> connection, String key, String owner, long wait) {
        List<Long> reply = acquire(connection, key, owner, wait);
        assertEquals(3, reply.size());
        assertTrue(reply.get(0) > 0, "a token");
        assertBetween(1, 30_000, reply.get(1), "the time to live");
        assertEquals(1, reply.get(2));
    }

    @ParameterizedTest
    @EnumSource
    void lockAcquireRepliesThreeIntegers(Resp resp) {
        var connection = resp.connect();
        String key = Names.key("acquire");
        granted(connection, key, "me", 0);
        assertEquals(0, release(connection, key, "me"));
    }

    @ParameterizedTest
    @EnumSource
    void lockAcquireWaitsForTheRelease(Resp resp) throws Exception {
        var first = resp.connect();
        var second = resp.connect();
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

    @ParameterizedTest
    @EnumSource
    void lockAcquireInVainRepliesNull(Resp resp) {
        var first = resp.connect();
        var second = resp.connect();
        String key = Names.key("acquire");
        granted(first, key, "first", 0);
        long begin = System.nanoTime();
        assertEquals(List.of(), acquire(second, key, "second", 200), "what IntegerListOutput makes of null");
        Wait.assertAtLeast(Duration.ofMillis(200), Wait.since(begin), "refused");
        assertNull(release(second, key, "second"));
        assertEquals(0, release(first, key, "first"));
    }

    @ParameterizedTest
    @EnumSource
    void lockAcquireRefusesADeadlock(Resp resp) {
        var connection = resp.connect();
        String key = Names.key("acquire");
        granted(connection, key, "me", 0);
        var refusal = assertThrows(RedisCommandExecutionException.class, () -> acquire(connection, key, "me", WAIT));
        assertTrue(refusal.getMessage().startsWith("DEADLOCK "), refusal::getMessage);
        assertEquals(0, release(connection, key, "me"));
    }
}
