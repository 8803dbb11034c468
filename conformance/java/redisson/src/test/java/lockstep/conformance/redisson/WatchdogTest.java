package lockstep.conformance.redisson;

import java.time.Duration;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Locks without a lease: Redisson gives them 30 s and renews every 10 s. These tests wait that out. */
@ExtendWith(Redissons.class)
class WatchdogTest {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final Duration LONGER = Duration.ofSeconds(35);

    @Test
    void keepsALockBeyondItsLease() throws Exception {
        String name = Names.key("watchdog");
        RLock lock = Redissons.owner().getLock(name);
        RLock seenByOther = Redissons.other().getLock(name);
        lock.lock();
        staysLocked(seenByOther);
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertTrue(seenByOther.tryLock());
        seenByOther.unlock();
    }

    /** Its renewal is another script, which loops over the number of times the lock is held. */
    @Test
    void keepsAReadLockBeyondItsLease() throws Exception {
        String name = Names.key("watchdog-read");
        RReadWriteLock lock = Redissons.owner().getReadWriteLock(name);
        RReadWriteLock seenByOther = Redissons.other().getReadWriteLock(name);
        lock.readLock().lock();
        lock.readLock().lock();
        staysLocked(seenByOther.writeLock());
        assertTrue(seenByOther.readLock().tryLock());
        seenByOther.readLock().unlock();
        lock.readLock().unlock();
        assertFalse(seenByOther.writeLock().tryLock());
        lock.readLock().unlock();
        assertTrue(seenByOther.writeLock().tryLock());
        seenByOther.writeLock().unlock();
    }

    @Test
    void keepsALockTakenThroughAnotherNode() throws Exception {
        String name = Names.key("watchdog-node");
        RLock lock = Redissons.node(1).getLock(name);
        lock.lock();
        staysLocked(Redissons.node(2).getLock(name));
        lock.unlock();
    }

    private static void staysLocked(RLock refused) throws InterruptedException {
        long start = System.nanoTime();
        while (Wait.since(start).compareTo(LONGER) < 0) {
            assertFalse(refused.tryLock(), "after " + Wait.since(start));
            assertBetween(1, LEASE.toMillis(), refused.remainTimeToLive(), "remainTimeToLive");
            Thread.sleep(500);
        }
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
