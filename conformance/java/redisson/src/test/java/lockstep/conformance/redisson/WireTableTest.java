package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.redisson.Redisson;
import org.redisson.api.RBoundedBlockingQueue;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RIdGenerator;
import org.redisson.api.RLock;
import org.redisson.api.RObject;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.ratelimiter.RateLimiterArgs;
import org.redisson.config.Config;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/**
 * Every script that an object has is run, and every command that it sends beside them: a {@link Recorder} counts. What they do is
 * the other tests' matter. Single mode; renewals are scripts too, and have a client with a short watchdog.
 */
@ExtendWith(Redissons.class)
class WireTableTest {
    private static final int WATCHDOG = 1500;
    /** Nothing is renewed while the rows run: a timer that another row's lock left behind renews whatever is held when it fires. */
    private static final int LONG_WATCHDOG = 600_000;
    /** Redisson forgets to unsubscribe when it gets its subscription only after the wait is over. */
    private static final int WAIT_MILLIS = 2000;
    private static Recorder recorder;
    private static RedissonClient client;
    private static RedissonClient brief;

    private final String name = Names.key("wire");

    @BeforeAll
    static void record() throws Exception {
        recorder = new Recorder(Endpoints.first());
        Config config = new Config();
        config.useSingleServer().setAddress(recorder.endpoint().uri());
        client = Redisson.create(new Config(config).setLockWatchdogTimeout(LONG_WATCHDOG));
        brief = Redisson.create(new Config(config).setLockWatchdogTimeout(WATCHDOG));
    }

    @AfterAll
    static void end() throws Exception {
        client.shutdown();
        brief.shutdown();
        recorder.close();
    }

    private RedissonClient other() {
        return Redissons.other();
    }

    private void assertSent(int scripts, String... commands) {
        assertEquals(scripts, recorder.scripts(name), () -> "scripts: " + recorder.about(name).stream()
                .filter(c -> c.get(0).startsWith("EVAL")).map(c -> c.get(0) + " " + c.get(1)).distinct().toList());
        assertEquals(Set.of(commands), recorder.plain(name));
    }

    /** Takes it, waits for it, asks about it, forces it: what every lock has. */
    private void live(RLock lock, RLock rival) throws Exception {
        assertTrue(lock.tryLock());
        lock.unlock();
        assertTrue(rival.tryLock(0, 1, SECONDS));
        assertFalse(lock.tryLock());
        assertTrue(lock.tryLock(30, 60, SECONDS));
        assertTrue(lock.forceUnlock() || lock instanceof org.redisson.RedissonFasterMultiLock);
        lock.lock();
        lock.unlock();
        sentLast("UNSUBSCRIBE");
        sentLast("DEL");
    }

    /** These go out after the call has returned. */
    private void sentLast(String command) throws InterruptedException {
        Wait.until(command + " is sent", () -> recorder.plain(name).contains(command));
    }

    @Test
    void rowRLock() throws Exception {
        RLock lock = client.getLock(name);
        live(lock, other().getLock(name));
        assertFalse(lock.isLocked());
        assertFalse(lock.isHeldByCurrentThread());
        assertEquals(0, lock.getHoldCount());
        assertEquals(-2, lock.remainTimeToLive());
        assertSent(3, "SUBSCRIBE", "UNSUBSCRIBE", "DEL", "EXISTS", "HEXISTS", "HGET", "PTTL");
    }

    @Test
    void rowWatchdog() throws Exception {
        List<RLock> locks = new ArrayList<>();
        for (int i = 0; i < 120; i++) { // more than one renewal takes
            locks.add(brief.getLock(name + ":" + i));
            locks.get(i).lock();
        }
        Thread.sleep(2 * WATCHDOG);
        for (RLock lock : locks) {
            assertTrue(lock.isHeldByCurrentThread());
            lock.unlock();
        }
        assertEquals(3, recorder.scripts(name), "lock, unlock and renewal");
    }

    @Test
    void rowFairLock() throws Exception {
        RLock lock = client.getFairLock(name);
        live(lock, other().getFairLock(name));
        assertTrue(other().getFairLock(name).tryLock(0, 60, SECONDS));
        assertFalse(lock.tryLock(WAIT_MILLIS, TimeUnit.MILLISECONDS));
        assertTrue(((RObject) lock).delete());
        assertSent(5, "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
    }

    @Test
    void rowReadLock() throws Exception {
        RReadWriteLock lock = client.getReadWriteLock(name);
        live(lock.readLock(), other().getReadWriteLock(name).writeLock());
        assertFalse(lock.readLock().isLocked());
        assertSent(4, "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
    }

    @Test
    void rowReadWatchdog() throws Exception {
        RLock lock = brief.getReadWriteLock(name).readLock();
        lock.lock();
        lock.lock();
        Thread.sleep(2 * WATCHDOG);
        assertEquals(2, lock.getHoldCount());
        lock.unlock();
        lock.unlock();
        assertEquals(3, recorder.scripts(name), "lock, unlock and renewal");
    }

    @Test
    void rowWriteLock() throws Exception {
        RReadWriteLock lock = client.getReadWriteLock(name);
        live(lock.writeLock(), other().getReadWriteLock(name).writeLock());
        assertFalse(lock.writeLock().isLocked());
        assertSent(3, "SUBSCRIBE", "UNSUBSCRIBE", "DEL", "HGET");
    }

    @Test
    void rowSpinLock() throws Exception {
        RLock lock = client.getSpinLock(name);
        assertTrue(other().getSpinLock(name).tryLock(0, 1, SECONDS));
        assertTrue(lock.tryLock(30, 60, SECONDS));
        lock.unlock();
        lock.lock();
        assertTrue(lock.forceUnlock());
        sentLast("DEL");
        assertSent(3, "DEL");
    }

    @Test
    void rowFencedLock() throws Exception {
        RFencedLock lock = client.getFencedLock(name);
        live(lock, other().getFencedLock(name));
        assertTrue(lock.lockAndGetToken() > 0);
        assertNotNull(lock.getToken());
        lock.unlock();
        assertTrue(((RObject) lock).delete());
        // RLock's unlock and forceUnlock, and its own with a token and without one.
        assertSent(4, "SUBSCRIBE", "UNSUBSCRIBE", "DEL", "GET");
    }

    @Test
    void rowNonReentrantLock() throws Exception {
        live(client.getNonReentrantLock(name), other().getNonReentrantLock(name));
        assertSent(3, "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
    }

    @Test
    void rowNonReentrantFairLock() throws Exception {
        RLock lock = client.getNonReentrantFairLock(name);
        live(lock, other().getNonReentrantFairLock(name));
        assertTrue(other().getFairLock(name).tryLock(0, 60, SECONDS));
        assertFalse(lock.tryLock(WAIT_MILLIS, TimeUnit.MILLISECONDS));
        assertTrue(lock.forceUnlock());
        assertSent(5, "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
    }

    @Test
    @SuppressWarnings("deprecation")
    void rowMultiLockAndRedLock() throws Exception {
        RLock[] parts = {client.getLock(name + ":1"), client.getLock(name + ":2"), client.getLock(name + ":3")};
        for (RLock lock : List.of(client.getMultiLock(parts), client.getRedLock(parts))) {
            assertTrue(lock.tryLock(5, 60, SECONDS));
            lock.unlock();
        }
        sentLast("DEL");
        // Lock, unlock, and the lease at the end.
        assertSent(3, "DEL");
    }

    @Test
    void rowFasterMultiLock() throws Exception {
        // Its locks are fields of one hash. Who takes over a hash of which the last millisecond has begun (PTTL 0) does not
        // renew it, so the new lock ends at once: on Redis, too, if the rival's was the only one. So there is another.
        RLock beside = other().getMultiLock(name, List.of("d"));
        beside.lock(60, SECONDS);
        RLock lock = client.getMultiLock(name, List.of("a", "b"));
        live(lock, other().getMultiLock(name, List.of("b", "c")));
        beside.unlock();
        RLock renewed = brief.getMultiLock(name, List.of("a", "b"));
        renewed.lock();
        Thread.sleep(2 * WATCHDOG);
        assertTrue(renewed.isHeldByCurrentThread());
        assertTrue(renewed.isLocked());
        renewed.unlock();
        assertSent(7, "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
    }

    @Test
    void rowSemaphore() throws Exception {
        RSemaphore semaphore = client.getSemaphore(name);
        assertTrue(semaphore.trySetPermits(2));
        semaphore.acquire(2);
        assertFalse(semaphore.tryAcquire(1, Duration.ofMillis(WAIT_MILLIS)));
        semaphore.release();
        assertTrue(semaphore.releaseIfExists(1));
        semaphore.addPermits(1);
        assertEquals(3, semaphore.availablePermits());
        assertEquals(3, semaphore.drainPermits());
        assertTrue(semaphore.delete());
        assertTrue(semaphore.trySetPermits(1, Duration.ofSeconds(60)));
        sentLast("UNSUBSCRIBE");
        assertSent(7, "SUBSCRIBE", "UNSUBSCRIBE", "GET", "DEL");
    }

    @Test
    void rowPermitExpirableSemaphore() throws Exception {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(3));
        String permit = semaphore.acquire(60, SECONDS);
        List<String> others = semaphore.tryAcquire(2);
        assertNull(semaphore.tryAcquire(WAIT_MILLIS, TimeUnit.MILLISECONDS));
        assertTrue(semaphore.updateLeaseTime(permit, 90, SECONDS));
        assertTrue(semaphore.getLeaseTime(permit) > 60_000);
        assertEquals(List.of(0, 3, 3), List.of(semaphore.availablePermits(), semaphore.acquiredPermits(), semaphore.getPermits()));
        assertTrue(semaphore.tryRelease(permit));
        assertEquals(2, semaphore.tryRelease(others));
        semaphore.addPermits(1);
        semaphore.setPermits(5);
        assertEquals(5, semaphore.availablePermits());
        assertTrue(semaphore.delete());
        sentLast("UNSUBSCRIBE");
        assertSent(11, "SUBSCRIBE", "UNSUBSCRIBE", "DEL");
    }

    @Test
    void rowCountDownLatch() throws Exception {
        RCountDownLatch latch = client.getCountDownLatch(name);
        assertTrue(latch.trySetCount(2));
        latch.countDown();
        assertFalse(latch.await(WAIT_MILLIS, TimeUnit.MILLISECONDS));
        assertEquals(1, latch.getCount());
        latch.countDown();
        assertFalse(latch.delete());
        sentLast("UNSUBSCRIBE");
        assertSent(3, "SUBSCRIBE", "UNSUBSCRIBE", "GET");
    }

    @Test
    @SuppressWarnings("deprecation")
    void rowRateLimiter() {
        RRateLimiter limiter = client.getRateLimiter(name);
        assertTrue(limiter.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(60)));
        assertTrue(limiter.tryAcquire(3));
        limiter.release(1);
        assertEquals(3, limiter.availablePermits());
        assertEquals(5L, limiter.getConfig().getRate());
        limiter.setRate(RateType.OVERALL, 7, Duration.ofSeconds(30));
        assertTrue(limiter.tryAcquire());
        assertTrue(limiter.updateRate(RateLimiterArgs.of(RateType.OVERALL, 9, Duration.ofSeconds(30))));
        assertTrue(limiter.tryAcquire(2));
        assertTrue(limiter.delete());
        assertSent(6, "HGETALL", "DEL");
    }

    @Test
    void rowIdGenerator() {
        RIdGenerator generator = client.getIdGenerator(name);
        assertTrue(generator.tryInit(1, 2));
        assertEquals(List.of(1L, 2L, 3L), List.of(generator.nextId(), generator.nextId(), generator.nextId()));
        assertTrue(generator.delete());
        assertSent(2, "DEL");
    }

    @Test
    void rowQueueSemaphore() {
        RBoundedBlockingQueue<String> queue = client.getBoundedBlockingQueue(name);
        assertTrue(queue.trySetCapacity(1));
        assertTrue(queue.offer("a"));
        assertFalse(queue.offer("b"));
        assertEquals("a", queue.poll());
        assertTrue(queue.offer("b"));
        assertTrue(queue.delete());
        assertTrue(recorder.scripts(name) >= 3, "capacity, offer and poll");
    }

    @Test
    void rowObjectAndExpirable() {
        RLock lock = client.getLock(name);
        assertFalse(((RObject) lock).isExists());
        lock.lock(60, SECONDS);
        RSemaphore semaphore = client.getSemaphore(name + ":s");
        assertTrue(semaphore.trySetPermits(1));
        assertTrue(semaphore.expire(Duration.ofSeconds(60)));
        assertFalse(semaphore.expireIfNotSet(Duration.ofSeconds(60)));
        assertTrue(semaphore.expireIfGreater(Duration.ofSeconds(90)));
        assertTrue(semaphore.expireIfLess(Duration.ofSeconds(50)));
        assertTrue(semaphore.expire(java.time.Instant.now().plusSeconds(60)));
        assertTrue(semaphore.remainTimeToLive() > 0);
        assertTrue(semaphore.getExpireTime() > 0);
        assertTrue(semaphore.clearExpire());
        assertTrue(semaphore.touch());
        assertTrue(semaphore.sizeInMemory() > 0);
        byte[] dump = semaphore.dump();
        assertTrue(semaphore.copy(name + ":c"));
        semaphore.rename(name + ":r");
        assertTrue(semaphore.unlink());
        semaphore.restore(dump);
        assertEquals(1, semaphore.availablePermits());
        assertTrue(lock.forceUnlock());
        assertTrue(recorder.plain(name).containsAll(Set.of("EXISTS", "PTTL", "PEXPIRETIME", "TOUCH", "DUMP", "UNLINK", "RESTORE", "GET")),
                recorder.plain(name).toString());
    }
}
