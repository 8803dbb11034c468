package lockstep.conformance;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import static org.junit.jupiter.api.Assertions.assertEquals;

/** Many threads after one lock: each adds to a counter that only the lock protects. */
public final class Contention {
    private final AtomicInteger inside = new AtomicInteger();
    private final CountDownLatch ready;
    private final int rounds;
    private int counter;

    /** What one thread does for one round: take the lock, run the section, release the lock. */
    @FunctionalInterface
    public interface Round {
        void locked(Callable<Void> section) throws Exception;
    }

    private Contention(int threads, int rounds) {
        this.ready = new CountDownLatch(threads);
        this.rounds = rounds;
    }

    /** Runs one thread per element, each for that many rounds, and checks that no two were ever inside at once. */
    public static void run(int rounds, List<? extends Round> threads) throws Exception {
        Contention contention = new Contention(threads.size(), rounds);
        List<Future<Void>> results = new ArrayList<>();
        for (Round round : threads) {
            results.add(Wait.start(() -> contention.thread(round)));
        }
        for (Future<Void> result : results) {
            result.get(100, TimeUnit.SECONDS);
        }
        assertEquals(rounds * threads.size(), contention.counter, "an update was lost");
    }

    private Void thread(Round round) throws Exception {
        ready.countDown();
        ready.await();
        for (int i = 0; i < rounds; i++) {
            round.locked(this::section);
        }
        return null;
    }

    /** Reads, gives others a chance, writes: without mutual exclusion updates are lost. */
    private Void section() throws InterruptedException {
        assertEquals(1, inside.incrementAndGet(), "owners of one lock at one time");
        int read = counter;
        Thread.sleep(1);
        counter = read + 1;
        inside.decrementAndGet();
        return null;
    }
}
