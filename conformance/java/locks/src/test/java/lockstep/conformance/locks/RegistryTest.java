package lockstep.conformance.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Control;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import lockstep.conformance.locks.RegistryCases.Registry;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

import static lockstep.conformance.Wait.assertAtLeast;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** What is particular to RedisLockRegistry: its locks are java.util.concurrent Locks, reentrant, and renewed by a scheduler. */
class RegistryTest {
    static List<Case> cases() {
        return RegistryCases.all();
    }

    private static Registry connect(Case about) throws Exception {
        about.assumeAvailable();
        return (Registry) about.connect().to(Control.addresses());
    }

    @ParameterizedTest
    @MethodSource("cases")
    void reentrancy(Case about) throws Exception {
        try (Registry a = connect(about); Registry b = connect(about)) {
            String name = Names.key("lock");
            DistributedLock lock = a.registry().obtain(name);
            DistributedLock others = b.registry().obtain(name);
            lock.lock();
            assertTrue(lock.tryLock());
            lock.unlock();
            assertFalse(others.tryLock(), "held once more");
            lock.unlock();
            assertTrue(others.tryLock(), "released");
            others.unlock();
            assertThrows(IllegalStateException.class, lock::unlock);
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void tryLockWaitsAsLongAsItMay(Case about) throws Exception {
        try (Registry a = connect(about); Registry b = connect(about)) {
            String name = Names.key("lock");
            DistributedLock lock = a.registry().obtain(name);
            lock.lock();
            long start = System.nanoTime();
            assertFalse(b.registry().obtain(name).tryLock(700, TimeUnit.MILLISECONDS));
            assertAtLeast(Duration.ofMillis(700), Wait.since(start), "giving up");
            lock.unlock();
        }
    }

    /** lock() waits without end: here until another registry unlocks. */
    @ParameterizedTest
    @MethodSource("cases")
    void lockWaits(Case about) throws Exception {
        try (Registry a = connect(about); Registry b = connect(about)) {
            String name = Names.key("lock");
            DistributedLock lock = a.registry().obtain(name);
            lock.lock();
            Future<Void> waiting = Wait.start(() -> {
                DistributedLock next = b.registry().obtain(name);
                next.lock();
                next.unlock();
                return null;
            });
            Thread.sleep(300);
            assertFalse(waiting.isDone());
            lock.unlock();
            waiting.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS);
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void renewalByAScheduler(Case about) throws Exception {
        ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
        scheduler.initialize();
        try (Registry a = connect(about); Registry b = connect(about)) {
            String name = Names.key("lock");
            a.registry().setRenewalTaskScheduler(scheduler);
            DistributedLock lock = a.registry().obtain(name);
            Duration lease = Duration.ofSeconds(3);
            lock.lock(lease);
            Thread.sleep(lease.plusMillis(500).toMillis());
            assertFalse(b.registry().obtain(name).tryLock(), "the lease was not renewed");
            lock.unlock();
            assertTrue(b.registry().obtain(name).tryLock());
        } finally {
            scheduler.shutdown();
        }
    }
}
