package lockstep.conformance.redisson;

import java.util.List;
import java.util.stream.IntStream;
import lockstep.conformance.Names;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** RedLock and MultiLock over three locks: at one address, and each through another node. */
@ExtendWith(Redissons.class)
@SuppressWarnings("deprecation") // Redisson discourages RedissonRedLock; programs in use have it.
class SeveralLocksTest {
    private static final List<RedissonClient> ONE_ADDRESS =
            List.of(Redissons.owner(), Redissons.owner(), Redissons.owner());
    private static final List<RedissonClient> THREE_NODES =
            List.of(Redissons.node(0), Redissons.node(1), Redissons.node(2));

    private List<String> names;

    @BeforeEach
    void freshNames() {
        names = IntStream.range(0, 3).mapToObj(i -> Names.key("part" + i)).toList();
    }

    private RLock[] parts(List<RedissonClient> clients) {
        return IntStream.range(0, 3).mapToObj(i -> clients.get(i).getLock(names.get(i))).toArray(RLock[]::new);
    }

    /** The part as a third party sees it. */
    private RLock part(int i) {
        return Redissons.other().getLock(names.get(i));
    }

    private void assertLocked(boolean first, boolean second, boolean third) {
        assertEquals(List.of(first, second, third), IntStream.range(0, 3).mapToObj(i -> part(i).isLocked()).toList());
    }

    @Test
    void redLock() throws Exception {
        redLock(ONE_ADDRESS);
    }

    @Test
    void redLockThroughThreeNodes() throws Exception {
        redLock(THREE_NODES);
    }

    private void redLock(List<RedissonClient> clients) throws Exception {
        RLock lock = new RedissonRedLock(parts(clients));
        assertTrue(lock.tryLock(10, 60, SECONDS));
        assertLocked(true, true, true);
        RLock rival = new RedissonRedLock(part(0), part(1), part(2));
        assertFalse(rival.tryLock(1, 60, SECONDS));
        lock.unlock();
        assertLocked(false, false, false);
        assertTrue(rival.tryLock(10, 60, SECONDS));
        rival.unlock();
        assertLocked(false, false, false);
    }

    @Test
    void redLockNeedsTheMajority() throws Exception {
        RLock lock = new RedissonRedLock(parts(ONE_ADDRESS));
        part(1).lock(60, SECONDS);
        assertTrue(lock.tryLock(10, 60, SECONDS), "two of three");
        assertLocked(true, true, true);
        assertTrue(part(1).isHeldByCurrentThread());
        lock.unlock();
        assertLocked(false, true, false);
        part(2).lock(60, SECONDS);
        assertFalse(lock.tryLock(2, 60, SECONDS), "one of three");
        assertLocked(false, true, true);
        part(1).unlock();
        part(2).unlock();
    }

    @Test
    void multiLockNeedsAll() throws Exception {
        multiLock(ONE_ADDRESS);
    }

    @Test
    void multiLockThroughThreeNodesNeedsAll() throws Exception {
        multiLock(THREE_NODES);
    }

    private void multiLock(List<RedissonClient> clients) throws Exception {
        RLock lock = new RedissonMultiLock(parts(clients));
        part(2).lock(60, SECONDS);
        assertFalse(lock.tryLock(2, 60, SECONDS));
        assertLocked(false, false, true);
        part(2).unlock();
        assertTrue(lock.tryLock(10, 60, SECONDS));
        assertLocked(true, true, true);
        assertFalse(part(0).tryLock());
        lock.unlock();
        assertLocked(false, false, false);
        lock.lock();
        assertLocked(true, true, true);
        lock.unlock();
        assertLocked(false, false, false);
    }
}
