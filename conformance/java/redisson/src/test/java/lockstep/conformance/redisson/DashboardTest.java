package lockstep.conformance.redisson;

import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

/**
 * Somebody ends the lock of one client by hand, in the dashboard, and the client that waits gets it. conformance/ui/ui_test.go starts it.
 */
@Tag("dashboard")
class DashboardTest {
    @Test
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void releasedByHand() throws Exception {
        RedissonClient owner = Redissons.create(Endpoints.node(0));
        RedissonClient other = Redissons.create(Endpoints.node(0));
        try {
            RLock held = owner.getLock("held-by-redisson");
            held.lock(4, TimeUnit.MINUTES);
            RLock wanted = other.getLock("held-by-redisson");
            assertTrue(wanted.tryLock(3, 30, TimeUnit.MINUTES), "nobody released the lock");
            assertFalse(held.isHeldByCurrentThread());
            while (!other.getBucket("seen-by-the-browser").isExists()) {
                Thread.sleep(50); // the test in the browser looks who has the lock now
            }
            wanted.unlock();
        } finally {
            owner.shutdown();
            other.shutdown();
        }
    }
}
