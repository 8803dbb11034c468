package lockstep.conformance.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Control;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import lockstep.conformance.locks.LockClient.Held;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import static org.junit.jupiter.api.Assertions.assertNotNull;

/** A lock that is held, and that another client wants, as LOCK.LIST and its kin show it. */
class SightTest {
    private static final Duration LEASE = Duration.ofSeconds(60);
    private static final Duration PATIENCE = Duration.ofSeconds(40);

    static List<Case> cases() {
        return Case.all();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void sight(Case c) throws Exception {
        c.assumeAvailable();
        Control.assumeSightIsPossible();
        String name = Names.key("sight");
        try (LockClient owner = c.connect().to(Control.addresses()); LockClient rival = c.connect().to(Control.addresses())) {
            Held held = owner.acquire(name, LEASE, Duration.ZERO);
            assertNotNull(held);
            Future<Held> waiting = Wait.start(() -> rival.acquire(name, LEASE, PATIENCE));
            try {
                Control.sight(c, keyOf(c, name), c.client().startsWith("ShedLock") ? "shedlock" : "plain", null, queueOf(c));
            } finally {
                held.release();
            }
            Held next = waiting.get(60, TimeUnit.SECONDS);
            assertNotNull(next, "the other client did not get the lock");
            next.release();
        }
    }

    private static String keyOf(Case c, String name) {
        if (c.client().startsWith("ShedLock Jedis")) {
            return "job-lock:" + (c.mode().contains("Pool") ? "default" : "conformance") + ":" + name;
        }
        if (c.client().startsWith("ShedLock")) {
            return "job-lock:default:" + name;
        }
        return c.client().startsWith("Spring") ? RegistryCases.REGISTRY + ":" + name : name;
    }

    /** ShedLock does not wait; the test asks again with another name each time. A registry may wait for a message of all its locks. */
    private static String queueOf(Case c) {
        return c.client().startsWith("ShedLock") || c.client().contains("PUB_SUB") ? "" : "poller";
    }
}
