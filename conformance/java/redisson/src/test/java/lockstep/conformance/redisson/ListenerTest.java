package lockstep.conformance.redisson;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.DeletedObjectListener;
import org.redisson.api.ExpiredObjectListener;
import org.redisson.api.RLock;
import org.redisson.api.redisnode.RedisNodes;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Listeners for the end of a lock: keyspace events, which Redisson expects to be switched on. */
@ExtendWith(Redissons.class)
class ListenerTest {
    private final String name = Names.key("listened");

    @BeforeAll
    static void switchEventsOn() {
        for (int i = 0; i < Endpoints.all().size(); i++) {
            Redissons.node(i).getRedisNodes(RedisNodes.SINGLE).getInstance().setConfig("notify-keyspace-events", "Egx");
        }
    }

    @ParameterizedTest
    @MethodSource("lockstep.conformance.redisson.Case#oneKey")
    void deletedListener(Case c) throws Exception {
        BlockingQueue<String> deleted = new LinkedBlockingQueue<>();
        RLock seenByOther = c.kind().of(c.other(), name);
        int listener = seenByOther.addListener((DeletedObjectListener) deleted::add);
        RLock lock = c.lock(name);
        lock.lock();
        lock.unlock();
        assertEquals(name, Wait.next(deleted));
        seenByOther.removeListener(listener);
        lock.lock();
        lock.unlock();
        Thread.sleep(200);
        assertTrue(deleted.isEmpty(), "heard after it was removed: " + deleted);
    }

    @ParameterizedTest
    @MethodSource("lockstep.conformance.redisson.Case#oneKey")
    void expiredListener(Case c) throws Exception {
        BlockingQueue<String> expired = new LinkedBlockingQueue<>();
        RLock seenByOther = c.kind().of(c.other(), name);
        int listener = seenByOther.addListener((ExpiredObjectListener) expired::add);
        c.lock(name).lock(1, SECONDS);
        assertEquals(name, Wait.next(expired));
        seenByOther.removeListener(listener);
    }
}
