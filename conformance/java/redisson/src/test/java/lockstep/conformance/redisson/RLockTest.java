package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Contention;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static lockstep.conformance.Wait.assertBetween;
import static lockstep.conformance.Wait.onAnotherThread;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** RLock in single-server mode: entering, waiting, leases, refusals. */
@ExtendWith(Redissons.class)
class RLockTest {
    private final RedissonClient owner = Redissons.owner();
    private final RedissonClient other = Redissons.other();
    private final String name = Names.key("rlock");
    private final RLock lock = owner.getLock(name);
    private final RLock seenByOther = other.getLock(name);

    private Map<String, String> hash() {
        return other.<String, String>getMap(name, StringCodec.INSTANCE).readAllMap();
    }

    @Test
    void reentrantLockCounts() {
        String field = owner.getId() + ":" + Thread.currentThread().getId();
        for (int depth = 1; depth <= 3; depth++) {
            lock.lock();
            assertEquals(depth, lock.getHoldCount());
            assertEquals(Map.of(field, "" + depth), hash());
        }
        for (int depth = 2; depth >= 0; depth--) {
            assertTrue(seenByOther.isLocked());
            lock.unlock();
            assertEquals(depth, lock.getHoldCount());
        }
        assertFalse(seenByOther.isLocked());
        assertEquals(0, other.getKeys().countExists(name));
    }

    @Test
    void whoHoldsItAndForHowLong() throws Exception {
        assertFalse(lock.isLocked());
        assertEquals(-2, lock.remainTimeToLive());
        lock.lock(60, SECONDS);
        assertTrue(lock.isLocked());
        assertTrue(lock.isHeldByCurrentThread());
        assertTrue(lock.isHeldByThread(Thread.currentThread().getId()));
        assertFalse(onAnotherThread(lock::isHeldByCurrentThread));
        assertTrue(seenByOther.isLocked());
        assertFalse(seenByOther.isHeldByCurrentThread());
        assertBetween(1, 60_000, seenByOther.remainTimeToLive(), "remainTimeToLive");
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread());
        assertEquals(-2, seenByOther.remainTimeToLive());
    }

    @Test
    void tryLockWithoutWaitingIsRefused() throws Exception {
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock(), "the owner itself may enter again");
        assertFalse(onAnotherThread(() -> lock.tryLock()));
        assertFalse(seenByOther.tryLock());
        lock.unlock();
        assertFalse(seenByOther.tryLock());
        lock.unlock();
        assertTrue(seenByOther.tryLock());
        seenByOther.unlock();
    }

    @Test
    void tryLockGivesUpAfterItsWaitingTime() throws Exception {
        lock.lock(60, SECONDS);
        long start = System.nanoTime();
        assertFalse(seenByOther.tryLock(1500, 60_000, MILLISECONDS));
        assertAtLeast(Duration.ofMillis(1500), Wait.since(start), "giving up");
        assertAtMost(Wait.SLACK, Wait.since(start), "giving up");
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
    }

    @Test
    void aWaiterIsWokenByTheUnlockMessageLongBeforeTheTtl() throws Exception {
        lock.lock(90, SECONDS);
        Future<Boolean> waiting = Wait.start(() -> seenByOther.tryLock(80, 60, SECONDS));
        Thread.sleep(1000);
        assertFalse(waiting.isDone());
        long start = System.nanoTime();
        lock.unlock();
        // Nothing but the message can wake it: otherwise it sleeps until the lease of 90 s or its wait of 80 s is over.
        assertTrue(waiting.get(60, SECONDS));
        assertAtMost(Wait.SLACK, Wait.since(start), "woken");
        assertFalse(lock.tryLock());
        assertTrue(seenByOther.forceUnlock());
    }

    @Test
    void everyWaiterGetsItsTurn() throws Exception {
        lock.lock();
        List<Future<Boolean>> waiting = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            RLock waiter = (i % 2 == 0 ? owner : other).getLock(name);
            waiting.add(Wait.start(() -> {
                waiter.lock();
                Thread.sleep(5);
                waiter.unlock();
                return true;
            }));
        }
        Thread.sleep(500);
        lock.unlock();
        for (Future<Boolean> waiter : waiting) {
            assertTrue(waiter.get(25, SECONDS), "before the watchdog's TTL of 30 s could help");
        }
        assertFalse(lock.isLocked());
    }

    @Test
    void aLeaseEndsNotEarlyAndUnlockIsThenRefused() throws Exception {
        Duration lease = Duration.ofSeconds(3);
        long start = System.nanoTime();
        assertTrue(lock.tryLock(10, lease.toSeconds(), SECONDS));
        assertTrue(seenByOther.tryLock(60, 60, SECONDS), "granted when the lease is over");
        assertAtLeast(lease, Wait.since(start), "granted anew");
        assertAtMost(lease.plus(Wait.SLACK), Wait.since(start), "granted anew");
        assertFalse(lock.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(seenByOther.isHeldByCurrentThread());
        seenByOther.unlock();
    }

    @Test
    void unlockByAnotherThreadIsRefused() throws Exception {
        lock.lock(60, SECONDS);
        onAnotherThread(() -> assertThrows(IllegalMonitorStateException.class, lock::unlock));
        assertThrows(IllegalMonitorStateException.class, seenByOther::unlock);
        assertTrue(lock.isHeldByCurrentThread());
        assertEquals(1, lock.getHoldCount());
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void forceUnlockTakesItFromTheOwnerAndWakesWaiters() throws Exception {
        lock.lock(90, SECONDS);
        lock.lock(90, SECONDS);
        Future<Boolean> waiting = Wait.start(() -> owner.getLock(name).tryLock(80, 60, SECONDS));
        Thread.sleep(500);
        long start = System.nanoTime();
        assertTrue(seenByOther.forceUnlock());
        assertTrue(waiting.get(60, SECONDS));
        assertAtMost(Wait.SLACK, Wait.since(start), "woken");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(seenByOther.forceUnlock());
        assertFalse(seenByOther.forceUnlock(), "nothing is left to unlock");
        assertFalse(lock.isLocked());
    }

    @Test
    void asynchronousCallsByThreadId() throws Exception {
        assertTrue(lock.tryLockAsync(0, 60_000, MILLISECONDS, 17).get(30, SECONDS));
        assertFalse(lock.tryLockAsync(0, 60_000, MILLISECONDS, 18).get(30, SECONDS));
        Future<Boolean> waiting = lock.tryLockAsync(80_000, 60_000, MILLISECONDS, 18).toCompletableFuture();
        Thread.sleep(300);
        lock.unlockAsync(17).get(30, SECONDS);
        assertTrue(waiting.get(Wait.SLACK.toSeconds(), SECONDS));
        assertTrue(lock.isHeldByThread(18));
        lock.unlockAsync(18).get(30, SECONDS);
        assertFalse(lock.isLocked());
    }

    @Test
    void noTwoOwnersAtOnce() throws Exception {
        contend(List.of(owner, other), 8, 15);
    }

    @Test
    void noTwoOwnersAtOnceThroughDifferentNodes() throws Exception {
        contend(List.of(Redissons.node(0), Redissons.node(1), Redissons.node(2)), 6, 15);
    }

    /** Beside the counter in this process there is one on the server, read and written in two commands. */
    private void contend(List<RedissonClient> clients, int threads, int rounds) throws Exception {
        String total = Names.key("total");
        List<Contention.Round> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            RedissonClient client = clients.get(i % clients.size());
            all.add(section -> {
                RLock mine = client.getLock(name);
                RBucket<String> counter = client.getBucket(total, StringCodec.INSTANCE);
                mine.lock();
                try {
                    section.call();
                    String read = counter.get();
                    counter.set(Integer.toString(read == null ? 1 : Integer.parseInt(read) + 1));
                } finally {
                    mine.unlock();
                }
            });
        }
        Contention.run(rounds, all);
        assertEquals("" + threads * rounds, owner.<String>getBucket(total, StringCodec.INSTANCE).getAndDelete());
        assertFalse(lock.isLocked());
    }

    @Test
    void aLockTakenThroughOneNodeHoldsOnTheOthers() throws Exception {
        RLock a = Redissons.node(0).getLock(name);
        RLock b = Redissons.node(1).getLock(name);
        RLock c = Redissons.node(2).getLock(name);
        for (int round = 0; round < 10; round++) {
            assertTrue(a.tryLock(0, 60, SECONDS));
            assertTrue(b.isLocked());
            assertFalse(b.tryLock());
            assertThrows(IllegalMonitorStateException.class, c::unlock);
            assertBetween(1, 60_000, c.remainTimeToLive(), "remainTimeToLive");
            a.unlock();
            assertFalse(c.isLocked());
            assertTrue(b.tryLock(0, 60, SECONDS), "released through one node, free on another at once");
            assertTrue(c.forceUnlock());
            assertFalse(a.isLocked());
        }
    }

    @Test
    void anUnlockThroughOneNodeWakesAWaiterOnAnother() throws Exception {
        RLock a = Redissons.node(0).getLock(name);
        RLock b = Redissons.node(1).getLock(name);
        RLock c = Redissons.node(2).getLock(name);
        a.lock(90, SECONDS);
        Future<Boolean> onB = Wait.start(() -> b.tryLock(80, 60, SECONDS) && unlocked(b));
        Future<Boolean> onC = Wait.start(() -> c.tryLock(80, 60, SECONDS) && unlocked(c));
        Thread.sleep(1000);
        assertFalse(onB.isDone() || onC.isDone());
        long start = System.nanoTime();
        a.unlock();
        assertTrue(onB.get(60, TimeUnit.SECONDS));
        assertTrue(onC.get(60, TimeUnit.SECONDS));
        assertAtMost(Wait.SLACK, Wait.since(start), "woken");
    }

    private static boolean unlocked(RLock lock) {
        lock.unlock();
        return true;
    }
}
