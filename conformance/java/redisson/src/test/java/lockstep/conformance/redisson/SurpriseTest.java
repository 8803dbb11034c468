package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RScript;
import org.redisson.api.RScript.ReturnType;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** What in Redisson's use of the protocol breaks servers that are nearly Redis. 4, 5 and 13 are in {@link FailoverTest}. */
@ExtendWith(Redissons.class)
class SurpriseTest {
    private final String name = Names.key("surprise");

    static Stream<About> modes() {
        return About.inEveryMode("scripts");
    }

    private static RScript script(RedissonClient client) {
        return client.getScript(StringCodec.INSTANCE);
    }

    /** One client of the first node that nobody else uses, and what it sends. */
    private record Recorded(Recorder recorder, RedissonClient client) implements AutoCloseable {
        static Recorded start(Config config) throws Exception {
            Recorder recorder = new Recorder(Endpoints.first());
            config.useSingleServer().setAddress(recorder.endpoint().uri());
            return new Recorded(recorder, Redisson.create(config));
        }

        static Recorded start() throws Exception {
            return start(new Config());
        }

        @Override
        public void close() throws Exception {
            client.shutdown();
            recorder.close();
        }
    }

    /** Its renewal says for c = counter, 1, -1 where counter is a string. */
    @Test
    void surprise01ReadLockWatchdogForOverString() throws Exception {
        try (Recorded r = Recorded.start(new Config().setLockWatchdogTimeout(3000))) {
            RReadWriteLock lock = r.client().getReadWriteLock(name);
            lock.readLock().lock();
            lock.readLock().lock();
            Thread.sleep(4500);
            assertFalse(Redissons.other().getReadWriteLock(name).writeLock().tryLock(), "its lease was renewed");
            assertEquals(2, lock.readLock().getHoldCount());
            String second = "{" + name + "}:" + r.client().getId() + ":" + Thread.currentThread().getId() + ":rwlock_timeout:2";
            assertBetween(1, 3000, Redissons.other().getBucket(second).remainTimeToLive(), "the second hold's time to live");
            lock.readLock().unlock();
            lock.readLock().unlock();
        }
    }

    @Test
    void surprise02TheProbeAtStartIsAnsweredWithoutCrossslot() throws Exception {
        try (Recorded r = Recorded.start()) {
            List<List<String>> probes = r.recorder().about("test1");
            assertFalse(probes.isEmpty(), "Redisson probes no more");
            assertEquals("EVAL", probes.get(0).get(0));
            assertNull(script(r.client()).eval(RScript.Mode.READ_WRITE, probes.get(0).get(1), ReturnType.VALUE,
                    List.of(name + "1", name + "2")));
        }
    }

    /** MOVED and ASK would be followed to the same server for ever: here every node answers everything itself. */
    @Test
    @Timeout(60)
    void surprise03NoRedirectionInSingleMode() throws Exception {
        for (int i = 0; i < 3; i++) {
            RedissonClient client = Redissons.node(i);
            for (int key = 0; key < 16; key++) { // in as many slots
                RLock lock = client.getLock(name + key);
                lock.lock();
                assertTrue(lock.isHeldByCurrentThread());
                lock.unlock();
                client.getBucket(name + "s" + key, StringCodec.INSTANCE).set("v", Duration.ofSeconds(60));
                assertEquals("v", client.getBucket(name + "s" + key, StringCodec.INSTANCE).get());
            }
        }
    }

    /** EVALSHA, SCRIPT LOAD and EVALSHA go over three connections of a pool: all nodes must have one cache. */
    @ParameterizedTest
    @MethodSource("modes")
    void surprise06NoscriptIsRepairedOnce(About a) {
        String text = "return ARGV[1] .. '" + name + "'";
        for (RedissonClient client : List.of(a.owner(), a.other())) {
            assertEquals("x" + name, script(client).<String>eval(RScript.Mode.READ_WRITE, text, ReturnType.VALUE, List.of(), "x"));
        }
        String sha = script(a.owner()).scriptLoad("return '" + name + "'");
        for (int i = 0; i < 3; i++) {
            assertEquals(name, script(Redissons.node(i)).<String>evalSha(RScript.Mode.READ_WRITE, sha, ReturnType.VALUE, List.of()));
        }
        RScript script = script(a.other());
        RedisException unknown = assertThrows(RedisException.class, () -> script
                .evalSha(RScript.Mode.READ_WRITE, "0123456789012345678901234567890123456789", ReturnType.VALUE, List.of()));
        assertTrue(unknown.getMessage().startsWith("NOSCRIPT "), unknown.getMessage());
    }

    /** An error that starts with "ERR unknown command" would make Redisson send the script again without end. */
    @ParameterizedTest
    @MethodSource("modes")
    @Timeout(30)
    void surprise07AnUnknownCommandInAScriptIsNoUnknownCommand(About a) {
        RScript script = script(a.owner());
        RedisException unknown = assertThrows(RedisException.class, () -> script
                .eval(RScript.Mode.READ_WRITE, "return redis.call('nosuchcommand')", ReturnType.VALUE, List.of(name)));
        assertTrue(unknown.getMessage().startsWith("ERR Unknown Redis command called from script"), unknown.getMessage());
    }

    @Test
    void surprise08AnUnlockDeletesItsLatch() throws Exception {
        try (Recorded r = Recorded.start()) {
            RLock lock = r.client().getLock(name);
            lock.lock();
            lock.unlock();
            Wait.until("the latch is deleted", () -> !r.recorder().about("redisson_unlock_latch").stream()
                    .filter(c -> c.get(0).equals("DEL")).toList().isEmpty());
            assertEquals(2, r.recorder().scripts(name));
            Wait.until("nothing is left", () ->
                    !Redissons.other().getKeys().getKeysByPattern("*" + name + "*").iterator().hasNext());
        }
    }

    @ParameterizedTest
    @MethodSource("modes")
    void surprise09ScriptsUseKeysThatTheyDoNotName(About a) throws Exception {
        RReadWriteLock lock = a.owner().getReadWriteLock(name);
        lock.readLock().lock(60, SECONDS);
        String hold = "{" + name + "}:" + a.owner().getId() + ":" + Thread.currentThread().getId() + ":rwlock_timeout:1";
        assertBetween(1, 60_000, a.other().getBucket(hold).remainTimeToLive(), "the hold's time to live");
        // And which command publishes is an argument.
        Future<Boolean> waiting = Wait.start(() -> a.other().getReadWriteLock(name).writeLock().tryLock(50, 1, SECONDS));
        Thread.sleep(300);
        lock.readLock().unlock();
        assertTrue(waiting.get(40, SECONDS));
        assertFalse(a.other().getBucket(hold).isExists());
    }

    /** A permit's end comes as text that Redisson compares, and parses as a whole number. */
    @ParameterizedTest
    @MethodSource("modes")
    void surprise10ScoresPrintAsDigits(About a) throws Exception {
        RPermitExpirableSemaphore semaphore = a.owner().getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        String leased = semaphore.acquire(60, SECONDS);
        // Refused, it is told the nearest end, and would sleep until then.
        assertNull(a.other().getPermitExpirableSemaphore(name).tryAcquire(300, 60_000, MILLISECONDS));
        semaphore.release(leased);
        String forGood = semaphore.acquire();
        assertNotNull(forGood);
        assertNull(a.other().getPermitExpirableSemaphore(name).tryAcquire());
        String score = script(a.other()).eval(RScript.Mode.READ_WRITE,
                "return redis.call('zrange', KEYS[1], 0, 0, 'WITHSCORES')[2]", ReturnType.VALUE, List.of("{" + name + "}:timeout"));
        assertEquals("922337203685477", score);
        semaphore.release(forGood);
    }

    @ParameterizedTest
    @MethodSource("modes")
    void surprise11NilIsNoEmptyArray(About a) {
        assertNull(script(a.owner()).<Long>eval(RScript.Mode.READ_WRITE, "return nil", ReturnType.LONG, List.of(name)));
        assertNull(script(a.owner()).<Long>eval(RScript.Mode.READ_WRITE, "return redis.call('get', KEYS[1])", ReturnType.LONG,
                List.of(name)));
    }

    @Test
    void surprise12SingleModeAsksAboutNothing() throws Exception {
        try (Recorded r = Recorded.start()) {
            RLock lock = r.client().getLock(name);
            RLock rival = Redissons.other().getLock(name);
            assertTrue(rival.tryLock(0, 1, SECONDS));
            assertTrue(lock.tryLock(30, 60, SECONDS), "after a wait");
            lock.unlock();
            Wait.until("it has tidied up", () -> r.recorder().names().contains("UNSUBSCRIBE") && r.recorder().names().contains("DEL"));
            Set<String> expected = Set.of("PING", "EVAL", "EVALSHA", "SCRIPT", "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
            assertTrue(expected.containsAll(r.recorder().names()), r.recorder().names().toString());
        }
    }
}
