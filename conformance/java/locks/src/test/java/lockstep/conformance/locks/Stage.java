package lockstep.conformance.locks;

import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisConnectionException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import lockstep.conformance.locks.LockClient.Held;
import redis.clients.jedis.exceptions.JedisClusterOperationException;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** A library in a mode during the failover: one lock that is held, and one that two clients contend for. */
final class Stage {
    private static final Duration HELD = Duration.ofSeconds(120);
    /** Short, because a grant whose reply is lost with its connection is nobody's until the lease ends: on Redis, too. */
    private static final Duration LEASE = Duration.ofSeconds(6);
    private static final int CONTENDERS = 2;

    private final Case about;
    private final String name = Names.key("failover");
    private final LockClient owner;
    private final LockClient thief;
    private final Held held;
    private final List<Contender> contenders = new ArrayList<>();
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicInteger after = new AtomicInteger();
    private final Queue<String> faults = new ConcurrentLinkedQueue<>();
    private volatile boolean failedOver;
    private volatile boolean stopped;

    Stage(Case about, Addresses addresses) throws Exception {
        this.about = about;
        owner = about.connect().to(addresses);
        thief = about.connect().to(addresses);
        held = owner.acquire(heldName(), HELD, Duration.ZERO);
        for (int i = 0; i < CONTENDERS; i++) {
            contenders.add(new Contender(about.connect().to(addresses)));
        }
    }

    /** One of those who contend: a process with a client of its own. */
    private final class Contender {
        final LockClient client;
        final Queue<String> unknown = new ConcurrentLinkedQueue<>();
        final Future<Void> life;

        Contender(LockClient client) {
            this.client = client;
            this.life = Wait.start(this::live);
        }

        private Void live() throws InterruptedException {
            while (!stopped) {
                try {
                    round();
                } catch (Exception e) {
                    sort(e);
                    Thread.sleep(100);
                }
                Thread.sleep(30);
            }
            return null;
        }

        private void round() throws Exception {
            Held got = client.acquire(name, LEASE, LEASE);
            if (got == null) {
                return;
            }
            boolean late = failedOver;
            if (inside.incrementAndGet() != 1) {
                faults.add("two inside at once");
            }
            Thread.sleep(2);
            inside.decrementAndGet();
            got.release();
            if (late) {
                after.incrementAndGet();
            }
        }

        /** A client of the killed node sees its connection break, and what it then sends again by itself may be refused. */
        private void sort(Exception e) {
            if (any(e, t -> String.valueOf(t.getMessage()).contains("INDETERMINATE"))) {
                unknown.add(e.toString());
            } else if (about.plain() || !any(e, Stage::isLostConnection) && !any(e, this::isRefusal)) {
                faults.add(trace(e));
            }
        }

        private boolean isRefusal(Throwable t) {
            return client.late().thrown() != null && client.late().thrown().isInstance(t);
        }
    }

    private static boolean isLostConnection(Throwable t) {
        return t instanceof IOException || t instanceof JedisConnectionException || t instanceof JedisClusterOperationException
                || t instanceof RedisConnectionException || t instanceof RedisCommandTimeoutException || isLostSubscription(t);
    }

    /**
     * Spring's container subscribes at the registry's first contended lock. If the connection it does that on is one to the
     * killed node, it tries again after 5 s, and the lock is told after 2 s, by this alone, that it had to wait.
     */
    private static boolean isLostSubscription(Throwable t) {
        return t instanceof IllegalStateException && t.getCause() instanceof TimeoutException
                && "Subscription registration timeout exceeded".equals(t.getMessage());
    }

    private static boolean any(Throwable e, Predicate<Throwable> matches) {
        for (Throwable t = e; t != null; t = t.getCause()) {
            if (matches.test(t)) {
                return true;
            }
        }
        return false;
    }

    private static String trace(Throwable e) {
        StringBuilder all = new StringBuilder();
        for (Throwable t = e; t != null; t = t.getCause()) {
            all.append(all.isEmpty() ? "" : " <- ").append(t);
        }
        return all.toString();
    }

    String heldName() {
        return name + ":held";
    }

    Held held() {
        return held;
    }

    LockClient thief() {
        return thief;
    }

    void failedOver() {
        failedOver = true;
    }

    /** How often the contended lock was granted after the failover. */
    int after() {
        return after.get();
    }

    List<String> faults() {
        return List.copyOf(faults);
    }

    /** The unknown outcomes of clients that had more than one. */
    List<String> tooMany() {
        return contenders.stream().filter(c -> c.unknown.size() > 1).map(c -> c.unknown.toString()).toList();
    }

    void stop() throws Exception {
        stopped = true;
        for (Contender contender : contenders) {
            contender.life.get(30, TimeUnit.SECONDS);
        }
    }

    void close() {
        owner.close();
        thief.close();
        contenders.forEach(c -> c.client.close());
    }
}
