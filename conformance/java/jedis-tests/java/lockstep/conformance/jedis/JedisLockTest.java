package lockstep.conformance.jedis;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Contention;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.UnifiedJedis;

import static lockstep.conformance.Wait.assertAtLeast;
import static lockstep.conformance.Wait.assertAtMost;
import static lockstep.conformance.Wait.assertBetween;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

class JedisLockTest {
    private static final Duration NO_WAIT = Duration.ZERO;
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final Duration OFTEN = Duration.ofMillis(20);

    private static UnifiedJedis connect() {
        return connect(Endpoints.first());
    }

    private static UnifiedJedis connect(Endpoint endpoint) {
        return Clients.pooled(endpoint.host(), endpoint.port());
    }

    private static JedisLock lock(UnifiedJedis client, String key, Duration ttl) {
        return new JedisLock(client, key, Names.owner(), ttl, OFTEN);
    }

    /** The article's main method with its own numbers: the wait of 20 s outlasts the TTL of 10 s, the lock must not. */
    @Test
    void theSecondLockGivesUpAfterItsWaitingTimeWhileTheFirstIsKeptAlive() throws Exception {
        try (UnifiedJedis client = connect()) {
            String key = Names.key("rock");
            Duration ttl = Duration.ofSeconds(10);
            Duration wait = Duration.ofSeconds(20);
            JedisLock first = new JedisLock(client, key, Names.owner(), ttl);
            JedisLock second = new JedisLock(client, key, Names.owner(), ttl);
            assertTrue(first.tryLock(wait));
            assertTrue(first.unlock());
            assertTrue(first.tryLock(wait));
            long start = System.nanoTime();
            assertFalse(second.tryLock(wait));
            assertAtLeast(wait, Wait.since(start), "giving up");
            assertAtMost(wait.plus(ttl).plus(Wait.SLACK), Wait.since(start), "giving up");
            assertEquals(first.owner(), client.get(key));
            assertBetween(1, 10, client.ttl(key), "TTL");
            assertNull(first.keepAlive().trouble());
            assertTrue(first.unlock());
        }
    }

    @Test
    void aLockIsTheOwnersNameWithADeadline() throws Exception {
        try (UnifiedJedis client = connect()) {
            JedisLock lock = lock(client, Names.key("lock"), LONG);
            assertTrue(lock.tryLock(NO_WAIT));
            assertEquals(lock.owner(), client.get(lock.key()));
            assertBetween(1, LONG.toMillis(), client.pttl(lock.key()), "PTTL");
            assertTrue(lock.unlock());
            assertFalse(client.exists(lock.key()));
            assertEquals(-2, client.pttl(lock.key()));
        }
    }

    @Test
    void onlyItsOwnerCanUnlock() throws Exception {
        try (UnifiedJedis client = connect(); UnifiedJedis other = connect()) {
            JedisLock owner = lock(client, Names.key("lock"), LONG);
            JedisLock stranger = lock(other, owner.key(), LONG);
            assertTrue(owner.tryLock(NO_WAIT));
            assertFalse(stranger.tryLock(NO_WAIT));
            assertFalse(stranger.unlock());
            assertEquals(owner.owner(), client.get(owner.key()));
            assertTrue(owner.unlock());
            assertFalse(owner.unlock(), "a second unlock has nothing to release");
        }
    }

    @Test
    void aWaiterGetsTheLockOnceItIsReleased() throws Exception {
        try (UnifiedJedis client = connect(); UnifiedJedis other = connect()) {
            JedisLock owner = lock(client, Names.key("lock"), LONG);
            JedisLock waiter = lock(other, owner.key(), LONG);
            assertTrue(owner.tryLock(NO_WAIT));
            Future<Boolean> waiting = Wait.start(() -> waiter.tryLock(LONG));
            Thread.sleep(500);
            assertFalse(waiting.isDone());
            assertTrue(owner.unlock());
            assertTrue(waiting.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS));
            assertEquals(waiter.owner(), client.get(owner.key()));
            assertTrue(waiter.unlock());
        }
    }

    @Test
    void theWatchdogKeepsALockBeyondItsTtl() throws Exception {
        try (UnifiedJedis client = connect(); UnifiedJedis other = connect()) {
            Duration ttl = Duration.ofSeconds(4);
            JedisLock lock = lock(client, Names.key("lock"), ttl);
            JedisLock stranger = lock(other, lock.key(), ttl);
            assertTrue(lock.tryLock(NO_WAIT));
            long start = System.nanoTime();
            while (Wait.since(start).compareTo(ttl.multipliedBy(3)) < 0) {
                assertFalse(stranger.tryLock(NO_WAIT));
                assertEquals(lock.owner(), client.get(lock.key()));
                assertBetween(1, ttl.toMillis(), client.pttl(lock.key()), "PTTL");
                Thread.sleep(200);
            }
            assertNull(lock.keepAlive().trouble());
            assertTrue(lock.keepAlive().renewals() > 3);
            assertTrue(lock.unlock());
        }
    }

    @Test
    void aDeadOwnersLockIsFreeAfterItsTtlAndNotBefore() throws Exception {
        Duration ttl = Duration.ofSeconds(3);
        JedisLock dead;
        try (UnifiedJedis client = connect()) {
            dead = lock(client, Names.key("lock"), ttl);
            assertTrue(dead.tryLock(NO_WAIT));
            Wait.until("the watchdog has renewed twice", () -> dead.keepAlive().renewals() >= 2);
            dead.abandon();
        }
        try (UnifiedJedis other = connect()) {
            JedisLock heir = lock(other, dead.key(), ttl);
            assertEquals(dead.owner(), other.get(dead.key()), "a closed connection ends no lease");
            assertTrue(heir.tryLock(LONG));
            Duration held = Wait.since(dead.keepAlive().lastSent());
            assertAtLeast(ttl, held, "granted anew");
            assertAtMost(ttl.plus(Wait.SLACK), held, "granted anew");
            assertEquals(heir.owner(), other.get(dead.key()));
            assertTrue(heir.unlock());
        }
    }

    @Test
    void anOwnerThatWasReplacedReleasesNothing() throws Exception {
        try (UnifiedJedis client = connect()) {
            JedisLock late = lock(client, Names.key("lock"), Duration.ofSeconds(1));
            JedisLock heir = lock(client, late.key(), LONG);
            assertTrue(late.tryLock(NO_WAIT));
            late.abandon();
            assertTrue(heir.tryLock(LONG));
            assertFalse(late.unlock());
            assertEquals(heir.owner(), client.get(late.key()));
            assertTrue(heir.unlock());
        }
    }

    @Test
    void noTwoOwnersAtOnce() throws Exception {
        contend(List.of(Endpoints.first(), Endpoints.first()));
    }

    @Test
    void noTwoOwnersAtOnceThroughDifferentNodes() throws Exception {
        contend(List.of(Endpoints.node(0), Endpoints.node(1), Endpoints.node(2)));
    }

    private void contend(List<Endpoint> endpoints) throws Exception {
        String key = Names.key("lock");
        List<UnifiedJedis> clients = new ArrayList<>();
        try {
            List<Contention.Round> threads = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                if (i < endpoints.size()) {
                    clients.add(connect(endpoints.get(i)));
                }
                UnifiedJedis client = clients.get(i % endpoints.size());
                threads.add(section -> {
                    JedisLock lock = new JedisLock(client, key, Names.owner(), LONG, Duration.ofMillis(5));
                    assertTrue(lock.tryLock(LONG));
                    section.call();
                    assertTrue(lock.unlock());
                });
            }
            Contention.run(15, threads);
            assertFalse(clients.get(0).exists(key));
        } finally {
            clients.forEach(UnifiedJedis::close);
        }
    }

    @Test
    void aLockTakenThroughOneNodeHoldsOnTheOthers() throws Exception {
        try (UnifiedJedis a = connect(Endpoints.node(0));
                UnifiedJedis b = connect(Endpoints.node(1));
                UnifiedJedis c = connect(Endpoints.node(2))) {
            String key = Names.key("lock");
            for (int round = 0; round < 20; round++) {
                JedisLock owner = lock(a, key, LONG);
                assertTrue(owner.tryLock(NO_WAIT));
                assertEquals(owner.owner(), b.get(key));
                assertFalse(lock(b, key, LONG).tryLock(NO_WAIT));
                assertFalse(lock(c, key, LONG).unlock());
                assertTrue(owner.unlock());
                JedisLock next = lock(c, key, LONG);
                assertTrue(next.tryLock(NO_WAIT), "released through one node, free on another at once");
                assertTrue(next.unlock());
                assertFalse(a.exists(key));
            }
        }
    }
}
