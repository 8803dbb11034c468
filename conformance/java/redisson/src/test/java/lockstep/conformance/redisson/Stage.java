package lockstep.conformance.redisson;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import lockstep.conformance.Wait;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** One object in one mode in the middle of a failover: threads that enter and leave it all the time. */
final class Stage {
    /** What one thread does; each has an object of its own. */
    interface Gate {
        /** False if it was not to be had in time. */
        boolean enter() throws Exception;

        void leave() throws Exception;

        /** Called inside. */
        default void inside(Stage stage) throws Exception {}

        default boolean isUnknown(Exception e) {
            return String.valueOf(e.getMessage()).contains("INDETERMINATE");
        }

        /** Called when the outcome of enter or leave is unknown: a program then looks whether it is in, and leaves. */
        default void recover() {}
    }

    private final Mode mode;
    private volatile int room;
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicInteger after = new AtomicInteger();
    private final AtomicInteger granted = new AtomicInteger();
    private final Queue<String> faults = new ConcurrentLinkedQueue<>();
    private final Queue<String> unknown = new ConcurrentLinkedQueue<>();
    private final List<Future<Void>> threads = new ArrayList<>();
    private volatile boolean over;
    private volatile boolean stopped;

    /** At most room threads may be inside at once. */
    Stage(Mode mode, int room) {
        this.mode = mode;
        this.room = room;
    }

    /** Lets so many more in. */
    void widen(int more) {
        room += more;
    }

    void start(Gate gate) {
        threads.add(Wait.start(() -> {
            while (!stopped) {
                round(gate);
                Thread.sleep(100);
            }
            return null;
        }));
    }

    private void round(Gate gate) throws InterruptedException {
        boolean afterwards = over;
        try {
            if (!gate.enter()) {
                return;
            }
            int now = inside.incrementAndGet();
            if (now > room) {
                fault(now + " inside at once");
            }
            try {
                gate.inside(this);
                Thread.sleep(2);
            } finally {
                inside.decrementAndGet();
            }
            gate.leave();
            if (afterwards) {
                after.incrementAndGet();
            }
        } catch (Exception e) {
            note(gate, e);
            Thread.sleep(100);
        }
    }

    void fault(String what) {
        faults.add(Failover.clock() + " " + what);
    }

    /**
     * In single mode the client is connected to a node that lives on: it may see one thing, that the outcome of a request in
     * flight is unknown. Other modes are connected to the killed leader, too: as with Redis they see broken connections, and what
     * they sent again may have been carried out twice.
     */
    private void note(Gate gate, Exception e) {
        if (gate.isUnknown(e)) {
            unknown.add(Failover.clock() + " " + e);
            gate.recover();
        } else if (mode.isSingle() || !isLost(e)) {
            fault(e.toString());
        }
    }

    private static boolean isLost(Exception e) {
        return e instanceof org.redisson.client.RedisTimeoutException
                || e instanceof org.redisson.client.RedisConnectionException
                || e instanceof org.redisson.client.RedisNodeNotFoundException
                || e instanceof IllegalMonitorStateException;
    }

    void assertAlone() {
        if (inside.get() != 1) {
            fault(inside + " inside at once");
        }
    }

    /** Counts what was handed out, of which there is so much. */
    void granted(int most) {
        int now = granted.incrementAndGet();
        if (now > most) {
            fault(now + " granted of " + most);
        }
    }

    void failedOver() {
        over = true;
    }

    boolean goesOn() {
        return after.get() >= 3;
    }

    void stop() {
        stopped = true;
    }

    void join() throws Exception {
        for (Future<Void> thread : threads) {
            thread.get(60, TimeUnit.SECONDS);
        }
    }

    void assertWentOn() {
        assertEquals(List.of(), List.copyOf(faults), "beside " + unknown);
        assertTrue(unknown.size() <= threads.size(), "only what was in flight is unknown: " + unknown);
        assertTrue(goesOn(), "entered " + after + " times after the failover");
    }
}
