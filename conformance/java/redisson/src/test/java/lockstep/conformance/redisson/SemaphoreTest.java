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
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** RSemaphore: a number of permits, waited for by message. */
@ExtendWith(Redissons.class)
class SemaphoreTest {
    private final String name = Names.key("semaphore");

    static Stream<About> modes() {
        return About.inEveryMode("semaphore");
    }

    @ParameterizedTest
    @MethodSource("modes")
    void acquireAndRelease(About a) throws Exception {
        RSemaphore semaphore = a.owner().getSemaphore(name);
        RSemaphore seenByOther = a.other().getSemaphore(name);
        assertFalse(semaphore.tryAcquire(), "it has no permits yet");
        assertTrue(semaphore.trySetPermits(3));
        assertFalse(seenByOther.trySetPermits(5), "it has its number");
        semaphore.acquire(2);
        assertFalse(seenByOther.tryAcquire(2));
        assertTrue(seenByOther.tryAcquire());
        assertEquals(0, semaphore.availablePermits());
        semaphore.release();
        semaphore.release(2);
        assertEquals(3, seenByOther.availablePermits());
        semaphore.addPermits(2);
        assertEquals(5, seenByOther.drainPermits());
        assertFalse(semaphore.tryAcquire());
        assertTrue(semaphore.delete());
        assertFalse(semaphore.releaseIfExists(1));
    }

    @ParameterizedTest
    @MethodSource("modes")
    void aWaiterIsWokenByTheRelease(About a) throws Exception {
        RSemaphore semaphore = a.owner().getSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        semaphore.acquire();
        Future<Boolean> inTime = Wait.start(() -> a.other().getSemaphore(name).tryAcquire(1, Duration.ofSeconds(80)));
        Thread.sleep(500);
        assertFalse(inTime.isDone());
        long start = System.nanoTime();
        semaphore.release();
        assertTrue(inTime.get(60, SECONDS));
        assertAtMost(Wait.SLACK, Wait.since(start), "woken");
        Future<Boolean> forGood = Wait.start(() -> {
            a.other().getSemaphore(name).acquire();
            return true;
        });
        Thread.sleep(300);
        assertFalse(forGood.isDone());
        semaphore.release();
        assertTrue(forGood.get(60, SECONDS));
    }

    @ParameterizedTest
    @MethodSource("modes")
    void aWaiterGivesUpInTime(About a) throws Exception {
        RSemaphore semaphore = a.owner().getSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        semaphore.acquire();
        long start = System.nanoTime();
        assertFalse(a.other().getSemaphore(name).tryAcquire(1, Duration.ofMillis(700)));
        assertAtLeast(Duration.ofMillis(700), Wait.since(start), "giving up");
        assertAtMost(Wait.SLACK, Wait.since(start), "giving up");
    }

    /** One permit excludes. */
    @ParameterizedTest
    @MethodSource("modes")
    void contention(About a) throws Exception {
        assertTrue(a.owner().getSemaphore(name).trySetPermits(1));
        List<Contention.Round> threads = new ArrayList<>();
        for (RedissonClient client : List.of(a.owner(), a.other(), a.owner(), a.other())) {
            threads.add(section -> {
                RSemaphore semaphore = client.getSemaphore(name);
                semaphore.acquire();
                try {
                    section.call();
                } finally {
                    semaphore.release();
                }
            });
        }
        Contention.run(4, threads);
        assertEquals(1, a.owner().getSemaphore(name).availablePermits());
    }

    @ParameterizedTest
    @MethodSource("modes")
    void permitsWithATimeToLive(About a) throws Exception {
        RSemaphore semaphore = a.owner().getSemaphore(name);
        assertTrue(semaphore.trySetPermits(1, Duration.ofSeconds(1)));
        assertTrue(a.other().getSemaphore(name).tryAcquire());
        Thread.sleep(1100);
        assertFalse(semaphore.isExists());
        assertTrue(semaphore.trySetPermits(1), "the first number is forgotten");
    }
}
