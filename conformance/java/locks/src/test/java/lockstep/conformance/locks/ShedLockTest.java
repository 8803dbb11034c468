package lockstep.conformance.locks;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import lockstep.conformance.Control;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import lockstep.conformance.locks.ShedLockCases.ShedLock;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redis.clients.jedis.RedisClient;

import static lockstep.conformance.Wait.assertAtLeast;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** What is particular to ShedLock: lockAtMostFor and lockAtLeastFor. */
class ShedLockTest implements Subject {
    private static final Duration LONG = Duration.ofSeconds(60);

    @Override
    public String client() {
        return "ShedLock wire";
    }

    @Override
    public String version() {
        return ShedLockCases.SPRING + ", " + ShedLockCases.JEDIS;
    }

    @Override
    public String mode() {
        return "all";
    }

    static List<Case> cases() {
        return ShedLockCases.all();
    }

    private static ShedLock connect(Case about) throws Exception {
        about.assumeAvailable();
        return (ShedLock) about.connect().to(Control.addresses());
    }

    /** A task that was done early keeps others away until lockAtLeastFor is over. */
    @ParameterizedTest
    @MethodSource("cases")
    void unlockKeepsLockAtLeastFor(Case about) throws Exception {
        try (ShedLock a = connect(about); ShedLock b = connect(about)) {
            String name = Names.key("task");
            Duration atLeast = Duration.ofMillis(1500);
            long start = System.nanoTime();
            a.lock(name, LONG, atLeast).orElseThrow().unlock();
            while (b.lock(name, LONG, Duration.ZERO).isEmpty()) {
                Wait.assertAtMost(Wait.SLACK, Wait.since(start), "waited");
                Thread.sleep(50);
            }
            assertAtLeast(atLeast, Wait.since(start), "granted anew");
        }
    }

    /** Extending gives another lock, with a lockAtLeastFor of its own. */
    @ParameterizedTest
    @MethodSource("cases")
    void extendWithLockAtLeastFor(Case about) throws Exception {
        try (ShedLock a = connect(about); ShedLock b = connect(about)) {
            String name = Names.key("task");
            SimpleLock lock = a.lock(name, LONG, Duration.ZERO).orElseThrow();
            long extended = System.nanoTime();
            Duration atLeast = Duration.ofMillis(1500);
            SimpleLock longer = lock.extend(LONG, atLeast).orElseThrow();
            assertThrows(IllegalStateException.class, lock::unlock, "it is not valid any more");
            longer.unlock();
            while (b.lock(name, LONG, Duration.ZERO).isEmpty()) {
                Wait.assertAtMost(Wait.SLACK, Wait.since(extended), "waited");
                Thread.sleep(50);
            }
            assertAtLeast(atLeast, Wait.since(extended), "granted anew");
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void aLockThatHasEndedCannotBeExtended(Case about) throws Exception {
        try (ShedLock a = connect(about)) {
            String name = Names.key("task");
            SimpleLock lock = a.lock(name, Duration.ofMillis(500), Duration.ZERO).orElseThrow();
            Thread.sleep(700);
            assertEquals(Optional.empty(), lock.extend(LONG, Duration.ZERO));
            assertTrue(a.lock(name, LONG, Duration.ZERO).isPresent());
        }
    }

    /** SET NX PX, SET XX PX, DEL. */
    @Test
    void rowsOfTheJedisProvider() throws Exception {
        try (Wire wire = new Wire(Endpoints.first());
                RedisClient client = RedisClient.create(JedisCases.host(wire.endpoint()))) {
            ShedLock shedLock = ShedLockCases.jedis(client);
            lockAndUnlock(shedLock);
            assertEquals(List.of("NX", "PX"), wire.commands("SET").get(0).subList(3, 5));
            assertEquals(List.of("XX", "PX"), wire.commands("SET").get(2).subList(3, 5));
            assertEquals(1, wire.commands("DEL").size());
        }
    }

    /** SET PX NX, SET PX XX, DEL; with safeUpdate scripts in place of the last two. */
    @Test
    void rowsOfTheSpringProvider() throws Exception {
        for (boolean safe : new boolean[] {false, true}) {
            try (Wire wire = new Wire(Endpoints.first())) {
                LettuceConnectionFactory factory = Spring.lettuce(Spring.plain(wire.addresses()));
                try (ShedLock shedLock = new ShedLock(new RedisLockProvider.Builder(factory).safeUpdate(safe).build(), null,
                        () -> Spring.close(factory))) {
                    lockAndUnlock(shedLock);
                }
                assertEquals("NX", wire.commands("SET").get(0).get(5));
                assertEquals(safe ? 2 : 3, wire.commands("SET").size());
                assertEquals(safe ? 0 : 1, wire.commands("DEL").size());
                assertEquals(safe, wire.commands().stream().anyMatch(c -> c.get(0).startsWith("EVAL")));
            }
        }
    }

    /** Locks, locks in vain, extends, unlocks. */
    private static void lockAndUnlock(ShedLock shedLock) {
        String name = Names.key("task");
        SimpleLock lock = shedLock.lock(name, LONG, Duration.ZERO).orElseThrow();
        assertFalse(shedLock.lock(name, LONG, Duration.ZERO).isPresent());
        lock.extend(LONG, Duration.ZERO).orElseThrow().unlock();
    }
}
