package lockstep.conformance;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

/**
 * Time in tests against a real server. Lower bounds ("a lease never ends early") are strict; upper bounds
 * only tell "woken" from "timed out", because the machine may be busy.
 */
public final class Wait {
    /** How much a machine under load may add to anything. */
    public static final Duration SLACK = Duration.ofSeconds(15);

    /** Deadlines are whole milliseconds of the server's clock, so one may seem this much early from outside. */
    public static final Duration ROUNDING = Duration.ofMillis(5);

    private Wait() {}

    /** Polls until the condition holds; fails the test if it does not within {@link #SLACK}. */
    public static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long start = System.nanoTime();
        while (!condition.getAsBoolean()) {
            if (since(start).compareTo(SLACK) > 0) {
                fail("waited " + SLACK + " in vain until " + what);
            }
            Thread.sleep(20);
        }
    }

    /** The time since a System.nanoTime() value. */
    public static Duration since(long nanos) {
        return Duration.ofNanos(System.nanoTime() - nanos);
    }

    public static void assertAtLeast(Duration least, Duration got, String what) {
        assertTrue(got.compareTo(least.minus(ROUNDING)) >= 0, what + " after " + got + ", which is before " + least);
    }

    public static void assertAtMost(Duration most, Duration got, String what) {
        assertTrue(got.compareTo(most) <= 0, what + " only after " + got + ", later than " + most);
    }

    public static void assertBetween(long least, long most, long got, String what) {
        assertTrue(got >= least && got <= most, what + " is " + got + ", not in " + least + ".." + most);
    }

    /** The next message, or a failed test. */
    public static String next(BlockingQueue<String> messages) throws InterruptedException {
        String message = messages.poll(SLACK.toSeconds(), TimeUnit.SECONDS);
        if (message == null) {
            fail("no message within " + SLACK);
        }
        return message;
    }

    /** Runs the call on a thread of its own: another owner, as far as a reentrant lock is concerned. */
    public static <T> T onAnotherThread(Callable<T> call) throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            return thread.submit(call).get(100, TimeUnit.SECONDS);
        } finally {
            thread.shutdownNow();
        }
    }

    /** Starts the call on a thread of its own and lets that thread end with it. */
    public static <T> Future<T> start(Callable<T> call) {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<T> result = thread.submit(call);
        thread.shutdown();
        return result;
    }
}
