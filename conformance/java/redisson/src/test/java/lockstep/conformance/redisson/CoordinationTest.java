package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RIdGenerator;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Count-down latch, rate limiter and id generator. */
@ExtendWith(Redissons.class)
class CoordinationTest {
    private final String name = Names.key("coordination");

    static Stream<About> latch() {
        return About.inEveryMode("count-down latch");
    }

    static Stream<About> limiter() {
        return About.inEveryMode("rate limiter");
    }

    static Stream<About> generator() {
        return About.inEveryMode("id generator");
    }

    @ParameterizedTest
    @MethodSource("latch")
    void aLatchOpensAtZero(About a) throws Exception {
        RCountDownLatch latch = a.owner().getCountDownLatch(name);
        RCountDownLatch seenByOther = a.other().getCountDownLatch(name);
        assertTrue(latch.trySetCount(2));
        assertFalse(seenByOther.trySetCount(9));
        Future<Boolean> inTime = Wait.start(() -> seenByOther.await(80, SECONDS));
        Future<Boolean> forGood = Wait.start(() -> {
            latch.await();
            return true;
        });
        latch.countDown();
        Thread.sleep(500);
        assertFalse(inTime.isDone() || forGood.isDone());
        assertEquals(1, seenByOther.getCount());
        long start = System.nanoTime();
        seenByOther.countDown();
        assertTrue(inTime.get(60, SECONDS));
        assertTrue(forGood.get(60, SECONDS));
        assertAtMost(Wait.SLACK, Wait.since(start), "woken");
        assertEquals(0, latch.getCount());
        assertTrue(latch.await(1, SECONDS), "open");
        assertTrue(latch.trySetCount(1), "to be used again");
    }

    @ParameterizedTest
    @MethodSource("latch")
    void aWaiterAtALatchGivesUpInTime(About a) throws Exception {
        RCountDownLatch latch = a.owner().getCountDownLatch(name);
        assertTrue(latch.trySetCount(1));
        long start = System.nanoTime();
        assertFalse(a.other().getCountDownLatch(name).await(700, MILLISECONDS));
        assertAtLeast(Duration.ofMillis(700), Wait.since(start), "giving up");
        assertEquals(1, latch.getCount());
        assertTrue(latch.delete());
        assertFalse(latch.delete());
        assertTrue(a.other().getCountDownLatch(name).await(1, SECONDS), "nothing to wait for");
    }

    @ParameterizedTest
    @MethodSource("limiter")
    void aRateLimiterCountsOverall(About a) throws Exception {
        RRateLimiter limiter = a.owner().getRateLimiter(name);
        RRateLimiter seenByOther = a.other().getRateLimiter(name);
        assertTrue(limiter.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(2)));
        assertFalse(seenByOther.trySetRate(RateType.OVERALL, 9, Duration.ofSeconds(2)), "it has its rate");
        assertEquals(5L, seenByOther.getConfig().getRate());
        long start = System.nanoTime();
        assertTrue(limiter.tryAcquire(3));
        assertTrue(seenByOther.tryAcquire(2));
        assertEquals(0, limiter.availablePermits());
        assertFalse(limiter.tryAcquire());
        assertTrue(seenByOther.tryAcquire(1, Duration.ofSeconds(60)), "waits for the next interval");
        assertAtLeast(Duration.ofSeconds(2), Wait.since(start), "the next interval");
        limiter.release(1);
        assertTrue(limiter.delete());
    }

    @ParameterizedTest
    @MethodSource("limiter")
    void aRateLimiterCountsPerClient(About a) {
        RRateLimiter limiter = a.owner().getRateLimiter(name);
        RRateLimiter seenByOther = a.other().getRateLimiter(name);
        limiter.setRate(RateType.PER_CLIENT, 2, Duration.ofSeconds(60), Duration.ofSeconds(90));
        assertTrue(limiter.tryAcquire(2));
        assertFalse(limiter.tryAcquire());
        assertTrue(seenByOther.tryAcquire(2), "another client");
        assertFalse(seenByOther.tryAcquire(1, Duration.ofMillis(300)));
    }

    @ParameterizedTest
    @MethodSource("limiter")
    void aRateLimiterUnderContention(About a) throws Exception {
        assertTrue(a.owner().getRateLimiter(name).trySetRate(RateType.OVERALL, 10, Duration.ofSeconds(60)));
        List<Future<Integer>> threads = new ArrayList<>();
        for (RedissonClient client : List.of(a.owner(), a.other(), a.owner(), a.other())) {
            threads.add(Wait.start(() -> {
                int granted = 0;
                for (int i = 0; i < 6; i++) {
                    granted += client.getRateLimiter(name).tryAcquire() ? 1 : 0;
                }
                return granted;
            }));
        }
        int granted = 0;
        for (Future<Integer> thread : threads) {
            granted += thread.get(60, SECONDS);
        }
        assertEquals(10, granted);
    }

    @ParameterizedTest
    @MethodSource("generator")
    void idsAreUniqueAcrossClients(About a) throws Exception {
        assertTrue(a.owner().getIdGenerator(name).tryInit(1000, 5));
        assertFalse(a.other().getIdGenerator(name).tryInit(1, 5));
        Set<Long> ids = ConcurrentHashMap.newKeySet();
        List<Future<Void>> threads = new ArrayList<>();
        for (RedissonClient client : List.of(a.owner(), a.other(), a.owner(), a.other())) {
            RIdGenerator generator = client.getIdGenerator(name);
            threads.add(Wait.start(() -> {
                for (int i = 0; i < 25; i++) {
                    long id = generator.nextId();
                    assertTrue(id >= 1000, "below the first: " + id);
                    assertTrue(ids.add(id), "given twice: " + id);
                }
                return null;
            }));
        }
        for (Future<Void> thread : threads) {
            thread.get(60, SECONDS);
        }
        assertEquals(100, ids.size());
    }
}
