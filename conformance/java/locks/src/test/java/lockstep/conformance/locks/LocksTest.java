package lockstep.conformance.locks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Contention;
import lockstep.conformance.Control;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import lockstep.conformance.locks.LockClient.Held;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import static lockstep.conformance.Wait.assertAtLeast;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

/** What every lock library promises, in every mode that it has. */
class LocksTest {
    private static final Duration NO_WAIT = Duration.ZERO;
    private static final Duration LONG = Duration.ofSeconds(60);

    private static final Addresses ADDRESSES = Control.addresses();
    private static final Map<String, LockClient> CLIENTS = new ConcurrentHashMap<>();

    static List<Case> cases() {
        return Case.all();
    }

    /** The n-th client of a case: the tests share them. */
    private static LockClient client(Case about, int n) {
        about.assumeAvailable();
        return CLIENTS.computeIfAbsent(about + " " + n, key -> {
            try {
                return about.connect().to(ADDRESSES);
            } catch (Exception e) {
                throw new IllegalStateException(key, e);
            }
        });
    }

    @AfterAll
    static void close() {
        CLIENTS.values().forEach(LockClient::close);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void acquireAndRelease(Case about) throws Exception {
        LockClient a = client(about, 0);
        LockClient b = client(about, 1);
        String name = Names.key("lock");
        Held held = a.acquire(name, LONG, NO_WAIT);
        assertNotNull(held);
        assertNull(b.acquire(name, LONG, NO_WAIT), "granted twice");
        held.release();
        Held next = b.acquire(name, LONG, NO_WAIT);
        assertNotNull(next, "released, but not free");
        next.release();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void contention(Case about) throws Exception {
        String name = Names.key("lock");
        List<Contention.Round> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            LockClient client = client(about, i);
            threads.add(section -> {
                Held held = client.acquire(name, LONG, LONG);
                assertNotNull(held, "waited in vain");
                section.call();
                held.release();
            });
        }
        Contention.run(4, threads);
    }

    /** The lease that began with the extension ends no earlier than promised. */
    @ParameterizedTest
    @MethodSource("cases")
    void extend(Case about) throws Exception {
        LockClient a = client(about, 0);
        LockClient b = client(about, 1);
        String name = Names.key("lock");
        Duration ttl = Duration.ofSeconds(4);
        Held held = a.acquire(name, ttl, NO_WAIT);
        assertNotNull(held);
        Thread.sleep(1500);
        long extended = System.nanoTime();
        held.extend(ttl);
        Held next = LockClient.retry(Wait.SLACK, () -> b.acquire(name, LONG, NO_WAIT));
        assertNotNull(next, "the lease never ended");
        assertAtLeast(ttl, Wait.since(extended), "granted anew");
        next.release();
    }

    /** The lease ends in time, and who comes late to release it does no harm. */
    @ParameterizedTest
    @MethodSource("cases")
    void expiry(Case about) throws Exception {
        LockClient a = client(about, 0);
        LockClient b = client(about, 1);
        String name = Names.key("lock");
        Duration ttl = Duration.ofSeconds(1);
        long start = System.nanoTime();
        Held late = a.acquire(name, ttl, NO_WAIT);
        assertNotNull(late);
        Held heir = LockClient.retry(Wait.SLACK, () -> b.acquire(name, LONG, NO_WAIT));
        assertNotNull(heir, "the lease never ended");
        assertAtLeast(ttl, Wait.since(start), "granted anew");
        if (a.late().thrown() == null) {
            late.release();
        } else {
            assertThrows(a.late().thrown(), late::release);
        }
        if (a.late().harmless()) {
            assertNull(client(about, 2).acquire(name, LONG, NO_WAIT), "a stranger released the lock");
            heir.release();
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void aWaiterGetsTheLockWhenItIsReleased(Case about) throws Exception {
        LockClient a = client(about, 0);
        LockClient b = client(about, 1);
        String name = Names.key("lock");
        Held held = a.acquire(name, LONG, NO_WAIT);
        assertNotNull(held);
        Future<Held> waiting = Wait.start(() -> b.acquire(name, LONG, LONG));
        Thread.sleep(300);
        assertFalse(waiting.isDone());
        held.release();
        Held next = waiting.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS);
        assertNotNull(next);
        next.release();
    }
}
