package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import lockstep.conformance.Contention;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** RPermitExpirableSemaphore: permits with a name and a lease, in a sorted set by their end. */
@ExtendWith(Redissons.class)
class PermitSemaphoreTest {
    private final String name = Names.key("permits");

    static Stream<About> modes() {
        return About.inEveryMode("permit-expirable semaphore");
    }

    @ParameterizedTest
    @MethodSource("modes")
    void acquireAndRelease(About a) throws Exception {
        RPermitExpirableSemaphore semaphore = a.owner().getPermitExpirableSemaphore(name);
        RPermitExpirableSemaphore seenByOther = a.other().getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(3));
        assertFalse(seenByOther.trySetPermits(4));
        String forEver = semaphore.acquire();
        List<String> two = seenByOther.acquire(2, 60, SECONDS);
        assertEquals(2, two.size());
        assertNull(semaphore.tryAcquire());
        assertEquals(List.of(0, 3, 3), List.of(semaphore.availablePermits(), semaphore.acquiredPermits(), semaphore.getPermits()));
        assertBetween(1, 60_000, semaphore.getLeaseTime(two.get(0)), "lease");
        assertTrue(semaphore.updateLeaseTime(two.get(0), 90, SECONDS));
        assertBetween(60_001, 90_000, semaphore.getLeaseTime(two.get(0)), "lease");
        semaphore.release(forEver);
        assertFalse(semaphore.tryRelease(forEver), "released before");
        assertThrows(RedisException.class, () -> semaphore.release(forEver));
        seenByOther.release(two);
        assertEquals(3, semaphore.availablePermits());
        semaphore.addPermits(2);
        semaphore.setPermits(4);
        assertEquals(4, seenByOther.getPermits());
        assertTrue(semaphore.delete());
    }

    @ParameterizedTest
    @MethodSource("modes")
    void aLeaseEndsNotEarly(About a) throws Exception {
        RPermitExpirableSemaphore semaphore = a.owner().getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        long start = System.nanoTime();
        String mine = semaphore.acquire(2, SECONDS);
        String next = a.other().getPermitExpirableSemaphore(name).tryAcquire(60, 60, SECONDS);
        assertNotNull(next);
        assertAtLeast(Duration.ofSeconds(2), Wait.since(start), "granted anew");
        assertAtMost(Duration.ofSeconds(2).plus(Wait.SLACK), Wait.since(start), "granted anew");
        assertFalse(semaphore.tryRelease(mine), "its lease is over");
        assertTrue(semaphore.tryRelease(next));
    }

    @ParameterizedTest
    @MethodSource("modes")
    void aWaiterIsWokenByTheRelease(About a) throws Exception {
        RPermitExpirableSemaphore semaphore = a.owner().getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        String mine = semaphore.acquire(90, SECONDS);
        Future<String> waiting = Wait.start(() -> a.other().getPermitExpirableSemaphore(name).tryAcquire(80, 60, SECONDS));
        Thread.sleep(500);
        assertFalse(waiting.isDone());
        long start = System.nanoTime();
        semaphore.release(mine);
        assertNotNull(waiting.get(60, SECONDS));
        assertAtMost(Wait.SLACK, Wait.since(start), "woken");
        long asked = System.nanoTime();
        assertNull(semaphore.tryAcquire(700, 60_000, MILLISECONDS));
        assertAtLeast(Duration.ofMillis(700), Wait.since(asked), "giving up");
    }

    @ParameterizedTest
    @MethodSource("modes")
    void contention(About a) throws Exception {
        assertTrue(a.owner().getPermitExpirableSemaphore(name).trySetPermits(1));
        List<Contention.Round> threads = new ArrayList<>();
        for (RedissonClient client : List.of(a.owner(), a.other(), a.owner(), a.other())) {
            threads.add(section -> {
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
                String permit = semaphore.acquire(60, SECONDS);
                try {
                    section.call();
                } finally {
                    semaphore.release(permit);
                }
            });
        }
        Contention.run(4, threads);
        assertEquals(1, a.owner().getPermitExpirableSemaphore(name).availablePermits());
    }
}
