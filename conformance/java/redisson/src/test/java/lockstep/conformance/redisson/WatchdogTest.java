package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.Map;
import java.util.stream.Stream;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.SECONDS;
import static java.util.stream.Collectors.toMap;
import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Locks without a lease: Redisson gives them 30 s and renews every 10 s. These tests wait that out, all at once. */
@ExtendWith(Redissons.class)
class WatchdogTest {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final Duration LONGER = Duration.ofSeconds(35);
    /** The thread that holds them. */
    private static final long OWNER = 1017;
    private static final Map<Case, String> NAMES = Case.all().collect(toMap(c -> c, c -> Names.key("watchdog")));

    /** Readers read twice: their renewal loops over the number of times. */
    private static int times(Case c) {
        return c.kind() == LockKind.READ ? 2 : 1;
    }

    @BeforeAll
    static void takeAllAndOutlastTheirLease() throws Exception {
        for (Case c : available().toList()) {
            for (int i = 0; i < times(c); i++) {
                assertTrue(c.lock(NAMES.get(c)).tryLockAsync(OWNER).get(30, SECONDS), c.toString());
            }
        }
        Thread.sleep(LONGER.toMillis());
    }

    private static Stream<Case> available() {
        return Case.all().filter(c -> c.setup().isAvailable());
    }

    @ParameterizedTest
    @MethodSource("lockstep.conformance.redisson.Case#all")
    void watchdogKeepsALockBeyondItsLease(Case c) throws Exception {
        c.setup().assumeAvailable();
        String name = NAMES.get(c);
        RLock lock = c.lock(name);
        for (int left = times(c); left > 0; left--) {
            assertTrue(lock.isHeldByThread(OWNER));
            assertFalse(c.rival(name).tryLock());
            if (c.kind().countsHolds()) {
                assertBetween(1, LEASE.toMillis(), c.kind().of(c.other(), name).remainTimeToLive(), "remainTimeToLive");
            }
            lock.unlockAsync(OWNER).get(30, SECONDS);
        }
        assertTrue(c.rival(name).tryLock());
        c.rival(name).unlock();
    }

    @Test
    void aDeadClientsLockIsFreeAfterItsLeaseAndNotBefore() throws Exception {
        String name = Names.key("watchdog-dead");
        RedissonClient dying = Redissons.create(Endpoints.first());
        long start = System.nanoTime();
        try {
            dying.getLock(name).lock();
        } finally {
            dying.shutdown();
        }
        RLock heir = Redissons.other().getLock(name);
        assertTrue(heir.isLocked(), "a closed connection ends no lease");
        assertTrue(heir.tryLock(80, 60, SECONDS));
        assertAtLeast(LEASE, Wait.since(start), "granted anew");
        assertAtMost(LEASE.plus(Wait.SLACK), Wait.since(start), "granted anew");
        heir.unlock();
    }

    @Test
    void leavesALockWithALeaseAlone() throws Exception {
        String name = Names.key("watchdog-lease");
        RLock lock = Redissons.owner().getLock(name);
        long start = System.nanoTime();
        lock.lock(12, SECONDS);
        RLock heir = Redissons.other().getLock(name);
        assertTrue(heir.tryLock(80, 60, SECONDS));
        assertAtLeast(Duration.ofSeconds(12), Wait.since(start), "granted anew");
        assertAtMost(Duration.ofSeconds(12).plus(Wait.SLACK), Wait.since(start), "granted anew");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        heir.unlock();
    }
}
