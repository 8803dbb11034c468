package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.concurrent.Future;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Redisson's other locks that are made of strings, hashes, scripts and messages. */
@ExtendWith(Redissons.class)
class OtherLocksTest {
    private final RedissonClient owner = Redissons.owner();
    private final RedissonClient other = Redissons.other();
    private final String name = Names.key("other");

    @Test
    void readersShareAndAWriterIsAlone() throws Exception {
        RReadWriteLock lock = owner.getReadWriteLock(name);
        RReadWriteLock seenByOther = other.getReadWriteLock(name);
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

    @Test
    void aWriterMayAlsoReadAndStepDown() {
        RReadWriteLock lock = owner.getReadWriteLock(name);
        RReadWriteLock seenByOther = other.getReadWriteLock(name);
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

    @Test
    void aFencedLocksTokenGrows() throws Exception {
        RFencedLock lock = owner.getFencedLock(name);
        RFencedLock seenByOther = other.getFencedLock(name);
        Long first = lock.lockAndGetToken();
        assertNull(seenByOther.tryLockAndGetToken(300, MILLISECONDS));
        lock.unlock();
        Long second = seenByOther.tryLockAndGetToken(60, SECONDS);
        assertTrue(second > first);
        seenByOther.unlock();
    }

    @Test
    void aSpinLockPollsUntilItIsFree() throws Exception {
        RLock lock = owner.getSpinLock(name);
        RLock seenByOther = other.getSpinLock(name);
        lock.lock(60, SECONDS);
        assertFalse(seenByOther.tryLock());
        Future<Boolean> waiting = Wait.start(() -> seenByOther.tryLock(50, 60, SECONDS));
        Thread.sleep(300);
        assertFalse(waiting.isDone());
        lock.unlock();
        assertTrue(waiting.get(Wait.SLACK.toSeconds(), SECONDS));
        assertTrue(owner.getLock(name).forceUnlock());
    }

    @Test
    void aSemaphoreHandsOutItsPermits() throws Exception {
        RSemaphore semaphore = owner.getSemaphore(name);
        RSemaphore seenByOther = other.getSemaphore(name);
        assertTrue(semaphore.trySetPermits(2));
        assertFalse(seenByOther.trySetPermits(5));
        semaphore.acquire();
        semaphore.acquire();
        assertFalse(seenByOther.tryAcquire());
        assertEquals(0, seenByOther.availablePermits());
        Future<Boolean> waiting = Wait.start(() -> seenByOther.tryAcquire(1, Duration.ofSeconds(60)));
        Thread.sleep(300);
        assertFalse(waiting.isDone());
        semaphore.release();
        assertTrue(waiting.get(Wait.SLACK.toSeconds(), SECONDS));
        semaphore.release(2);
        assertEquals(2, seenByOther.availablePermits());
        assertTrue(semaphore.delete());
    }

    @Test
    void aLatchOpensAtZero() throws Exception {
        RCountDownLatch latch = owner.getCountDownLatch(name);
        RCountDownLatch seenByOther = other.getCountDownLatch(name);
        assertTrue(latch.trySetCount(2));
        Future<Boolean> waiting = Wait.start(() -> seenByOther.await(60, SECONDS));
        latch.countDown();
        Thread.sleep(300);
        assertFalse(waiting.isDone());
        assertEquals(1, seenByOther.getCount());
        seenByOther.countDown();
        assertTrue(waiting.get(Wait.SLACK.toSeconds(), SECONDS));
        assertEquals(0, latch.getCount());
    }
}
