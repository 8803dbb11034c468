package lockstep.conformance.redisson;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** What single kinds of locks promise beyond {@link LocksTest}. */
@ExtendWith(Redissons.class)
class ParticularsTest {
    private static final String FAIR = "lockstep.conformance.redisson.Case#fair";

    private final String name = Names.key("particular");

    static List<Case> read() {
        return Case.all().filter(c -> c.kind() == LockKind.READ).toList();
    }

    static List<Case> write() {
        return Case.all().filter(c -> c.kind() == LockKind.WRITE).toList();
    }

    static List<Case> fenced() {
        return Case.all().filter(c -> c.kind() == LockKind.FENCED).toList();
    }

    static List<Case> red() {
        return Case.all().filter(c -> c.kind() == LockKind.RED).toList();
    }

    static List<Case> multi() {
        return Case.all().filter(c -> c.kind() == LockKind.MULTI).toList();
    }

    static List<Case> fasterMulti() {
        return Case.all().filter(c -> c.kind() == LockKind.FASTER_MULTI).toList();
    }

    @ParameterizedTest
    @MethodSource("read")
    void readersShareAndAWriterIsAlone(Case c) throws Exception {
        RReadWriteLock lock = c.owner().getReadWriteLock(name);
        RReadWriteLock seenByOther = c.other().getReadWriteLock(name);
        lock.readLock().lock(60, SECONDS);
        assertTrue(seenByOther.readLock().tryLock(0, 60, SECONDS));
        assertFalse(seenByOther.writeLock().tryLock());
        seenByOther.readLock().unlock();
        Future<Boolean> writer = Wait.start(() -> seenByOther.writeLock().tryLock(80, 60, SECONDS));
        Thread.sleep(300);
        assertFalse(writer.isDone());
        lock.readLock().unlock();
        assertTrue(writer.get(Wait.SLACK.toSeconds(), SECONDS));
        assertFalse(lock.readLock().tryLock());
        assertTrue(seenByOther.writeLock().forceUnlock());
    }

    /** Threads that read and threads that write: readers may be together, a writer never is with anybody. */
    @ParameterizedTest
    @MethodSource("read")
    void contentionOfReadersAndWriters(Case c) throws Exception {
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger writers = new AtomicInteger();
        List<Future<Void>> threads = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            boolean writes = i % 3 == 0;
            RReadWriteLock lock = (i % 2 == 0 ? c.owner() : c.other()).getReadWriteLock(name);
            threads.add(Wait.start(() -> {
                for (int round = 0; round < 5; round++) {
                    RLock mine = writes ? lock.writeLock() : lock.readLock();
                    assertTrue(mine.tryLock(60, 30, SECONDS), "waited in vain");
                    (writes ? writers : readers).incrementAndGet();
                    Thread.sleep(ThreadLocalRandom.current().nextInt(1, 5));
                    assertEquals(writes ? 1 : 0, writers.get(), "writers inside");
                    assertTrue(!writes || readers.get() == 0, "readers beside a writer");
                    (writes ? writers : readers).decrementAndGet();
                    mine.unlock();
                }
                return null;
            }));
        }
        for (Future<Void> thread : threads) {
            thread.get(80, SECONDS);
        }
    }

    @ParameterizedTest
    @MethodSource("write")
    void aWriterMayAlsoReadAndStepDown(Case c) {
        RReadWriteLock lock = c.owner().getReadWriteLock(name);
        RReadWriteLock seenByOther = c.other().getReadWriteLock(name);
        lock.writeLock().lock(60, SECONDS);
        lock.readLock().lock(60, SECONDS);
        assertFalse(seenByOther.readLock().tryLock());
        lock.writeLock().unlock();
        assertTrue(seenByOther.readLock().tryLock(), "only the read lock is left");
        seenByOther.readLock().unlock();
        lock.readLock().unlock();
        assertTrue(seenByOther.writeLock().tryLock());
        seenByOther.writeLock().unlock();
    }

    @ParameterizedTest
    @MethodSource(FAIR)
    void waitersGetTheirTurnInOrderOfArrival(Case c) throws Exception {
        LinkedBlockingQueue<Integer> served = new LinkedBlockingQueue<>();
        RLock lock = c.lock(name);
        lock.lock(90, SECONDS);
        List<Future<Void>> waiting = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            int turn = i;
            RLock mine = c.kind().of(i % 2 == 0 ? c.owner() : c.other(), name);
            waiting.add(Wait.start(() -> {
                mine.lock();
                served.add(turn);
                mine.unlock();
                return null;
            }));
            int queued = i + 1;
            Wait.until("the waiter is in the queue", () ->
                    c.other().getDeque("redisson_lock_queue:{" + name + "}").size() == queued);
        }
        lock.unlock();
        for (Future<Void> waiter : waiting) {
            waiter.get(30, SECONDS);
        }
        assertEquals(List.of(0, 1, 2, 3, 4), List.copyOf(served));
    }

    @ParameterizedTest
    @MethodSource("fenced")
    void tokensGrow(Case c) {
        RFencedLock lock = c.owner().getFencedLock(name);
        RFencedLock seenByOther = c.other().getFencedLock(name);
        Long first = lock.lockAndGetToken();
        assertEquals(first, seenByOther.getToken());
        assertNull(seenByOther.tryLockAndGetToken(300, MILLISECONDS));
        Long again = lock.tryLockAndGetToken();
        assertTrue(again > first, "entering once more");
        lock.unlock();
        lock.unlock();
        Long second = seenByOther.tryLockAndGetToken(5, 60, SECONDS);
        assertTrue(second > again);
        seenByOther.unlock();
    }

    /** A lock of three parts, as a third party sees them. */
    private void assertLocked(Case c, boolean first, boolean second, boolean third) {
        assertEquals(List.of(first, second, third),
                List.of(part(c, 1).isLocked(), part(c, 2).isLocked(), part(c, 3).isLocked()));
    }

    private RLock part(Case c, int i) {
        return c.other().getLock(name + ":" + i);
    }

    @ParameterizedTest
    @MethodSource("red")
    void redLockNeedsTheMajority(Case c) throws Exception {
        RLock lock = c.lock(name);
        part(c, 2).lock(60, SECONDS);
        assertTrue(lock.tryLock(10, 60, SECONDS), "two of three");
        assertLocked(c, true, true, true);
        assertTrue(part(c, 2).isHeldByCurrentThread());
        lock.unlock();
        assertLocked(c, false, true, false);
        part(c, 3).lock(60, SECONDS);
        assertFalse(lock.tryLock(2, 60, SECONDS), "one of three");
        assertLocked(c, false, true, true);
        part(c, 2).unlock();
        part(c, 3).unlock();
    }

    @ParameterizedTest
    @MethodSource("multi")
    void multiLockNeedsAll(Case c) throws Exception {
        RLock lock = c.lock(name);
        part(c, 3).lock(60, SECONDS);
        assertFalse(lock.tryLock(2, 60, SECONDS));
        assertLocked(c, false, false, true);
        part(c, 3).unlock();
        lock.lock();
        assertLocked(c, true, true, true);
        lock.unlock();
        assertLocked(c, false, false, false);
    }

    /** The parts each through another node: as users of RedLock and MultiLock have it. */
    @ParameterizedTest
    @MethodSource("singles")
    void partsThroughSeveralNodes(Case c) throws Exception {
        List<RedissonClient> nodes = List.of(Redissons.node(0), Redissons.node(1), Redissons.node(2));
        RLock[] parts = new RLock[3];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = nodes.get(i).getLock(name + ":" + (i + 1));
        }
        RLock lock = together(c, parts);
        assertTrue(lock.tryLock(10, 60, SECONDS));
        assertLocked(c, true, true, true);
        assertFalse(c.rival(name).tryLock(1, 60, SECONDS));
        lock.unlock();
        assertLocked(c, false, false, false);
        assertTrue(c.rival(name).tryLock(10, 60, SECONDS));
        c.rival(name).unlock();
    }

    static List<Case> singles() {
        return List.of(new Case(Mode.SINGLE, LockKind.RED), new Case(Mode.SINGLE, LockKind.MULTI));
    }

    @SuppressWarnings("deprecation")
    private static RLock together(Case c, RLock[] parts) {
        return c.kind() == LockKind.RED ? c.owner().getRedLock(parts) : c.owner().getMultiLock(parts);
    }

    @ParameterizedTest
    @MethodSource("fasterMulti")
    void valuesOfAGroupAreLockedTogether(Case c) throws Exception {
        RLock ab = c.owner().getMultiLock(name, List.of("a", "b"));
        RLock bc = c.other().getMultiLock(name, List.of("b", "c"));
        RLock cd = c.other().getMultiLock(name, List.of("c", "d"));
        ab.lock(60, SECONDS);
        assertFalse(bc.tryLock(), "b is taken");
        assertTrue(cd.tryLock(0, 60, SECONDS), "neither c nor d is");
        CompletableFuture<Boolean> waiting = bc.tryLockAsync(80, 60, SECONDS, 1017).toCompletableFuture();
        Thread.sleep(300);
        ab.unlock();
        Thread.sleep(300);
        assertFalse(waiting.isDone(), "c is taken");
        cd.unlock();
        assertTrue(waiting.get(60, SECONDS));
        assertFalse(ab.tryLock());
        bc.unlockAsync(1017).get(30, SECONDS);
        assertTrue(ab.tryLock());
        ab.unlock();
    }
}
