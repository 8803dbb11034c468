package lockstep.conformance.jedis;

import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;

/** A lock's watchdog: renews the lease at once and then every third of its length. */
final class KeepAlive {
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "keep-alive");
        thread.setDaemon(true);
        return thread;
    });
    private final AtomicInteger renewals = new AtomicInteger();
    private final AtomicReference<String> trouble = new AtomicReference<>();
    private final BooleanSupplier renewal;
    private volatile long lastSent;

    /** The renewal says whether the lock was still there to be renewed. */
    KeepAlive(BooleanSupplier renewal, Duration ttl) {
        this.renewal = renewal;
        this.lastSent = System.nanoTime();
        timer.scheduleAtFixedRate(this::renew, 0, ttl.toMillis() / 3, TimeUnit.MILLISECONDS);
    }

    private void renew() {
        lastSent = System.nanoTime();
        try {
            if (renewal.getAsBoolean()) {
                renewals.incrementAndGet();
            } else {
                trouble.compareAndSet(null, "the lock was gone when it was to be renewed");
            }
        } catch (RuntimeException e) {
            // Kept for the test to look at, and the next turn may succeed: throwing would end the timer.
            trouble.compareAndSet(null, e.toString());
        }
    }

    /** Returns once no renewal is under way and none can follow. */
    void stop() throws InterruptedException {
        timer.shutdown();
        if (!timer.awaitTermination(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("a renewal does not end");
        }
    }

    int renewals() {
        return renewals.get();
    }

    /** When the last renewal was sent, in System.nanoTime() terms: the lease must last that long and its TTL more. */
    long lastSent() {
        return lastSent;
    }

    /** What went wrong first, or null. */
    String trouble() {
        return trouble.get();
    }
}
