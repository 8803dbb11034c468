package lockstep.conformance.redisson;

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

import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertAtMost;
import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** RLock in single-server mode beyond {@link LocksTest}: what is stored, and several nodes. */
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
