package lockstep.conformance.redisson;

import java.util.stream.Stream;
import lockstep.conformance.Control;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Subject;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.redisnode.RedisNodes;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** kill -9 of the leader, with everything of {@link Failover} held and contended. */
@Tag("failover")
@ExtendWith(Redissons.class)
class FailoverTest {
    /** Before the tests, because it takes longer than any of them may. */
    @BeforeAll
    @Timeout(200)
    static void fail() throws Exception {
        if (Control.canFailOver() && Mode.PLAIN.stream().allMatch(Mode::isAvailable)) {
            Failover.ofAll();
        }
    }

    private static Failover failover(Mode mode) throws Exception {
        Control.assumeFailoverIsPossible();
        mode.assumeAvailable();
        return Failover.ofAll();
    }

    @ParameterizedTest
    @MethodSource("lockstep.conformance.redisson.Case#all")
    void failoverHeldLockIsStillHeld(Case c) throws Exception {
        Failover failover = failover(c.setup());
        String name = failover.held(c.kind() + ":" + c.setup());
        RLock lock = c.lock(name);
        assertTrue(lock.isHeldByThread(Failover.OWNER));
        assertFalse(c.rival(name).tryLock(), "granted twice");
        if (c.kind().isReentrant()) {
            lock.unlockAsync(Failover.OWNER).get(30, SECONDS);
            assertFalse(c.rival(name).tryLock(), "held twice and released once");
        }
        lock.unlockAsync(Failover.OWNER).get(30, SECONDS);
        assertTrue(c.rival(name).tryLock());
        c.rival(name).unlock();
    }

    static Stream<Subject> contended() {
        return Failover.contended();
    }

    @ParameterizedTest
    @MethodSource("contended")
    void failoverContendedObjectGoesOn(Subject subject) throws Exception {
        failover(subject instanceof Case c ? c.setup() : ((About) subject).setup()).stage(subject).assertWentOn();
    }

    static Stream<About> semaphore() {
        return About.inEveryMode("semaphore");
    }

    @ParameterizedTest
    @MethodSource("semaphore")
    void failoverHeldPermitsAreStillHeldAndAWaiterIsWoken(About a) throws Exception {
        Failover failover = failover(a.setup());
        RSemaphore semaphore = a.owner().getSemaphore(failover.held("semaphore:" + a.setup()));
        assertEquals(1, semaphore.availablePermits());
        assertFalse(failover.waiter(a.setup()).isDone());
        semaphore.release(Failover.PERMITS - 1);
        failover.waiter(a.setup()).get(60, SECONDS);
        assertEquals(0, semaphore.availablePermits());
    }

    static Stream<About> permits() {
        return About.inEveryMode("permit-expirable semaphore");
    }

    @ParameterizedTest
    @MethodSource("permits")
    void failoverHeldPermitsAreStillHeld(About a) throws Exception {
        String name = failover(a.setup()).held("permits:" + a.setup());
        RPermitExpirableSemaphore permits = a.other().getPermitExpirableSemaphore(name);
        assertEquals(Failover.PERMITS - 1, permits.acquiredPermits());
        assertEquals(1, permits.availablePermits());
    }

    static Stream<About> latch() {
        return About.inEveryMode("count-down latch");
    }

    @ParameterizedTest
    @MethodSource("latch")
    void failoverALatchOpensForThoseWhoWaited(About a) throws Exception {
        Failover failover = failover(a.setup());
        assertFalse(failover.latch(a.setup()).isDone());
        a.owner().getCountDownLatch(failover.held("latch:" + a.setup())).countDown();
        failover.latch(a.setup()).get(60, SECONDS);
    }

    static Stream<Case> counted() {
        return Case.exclusive().filter(c -> c.setup().isSingle() && c.kind().countsHolds());
    }

    /** A refusal that Redisson retries (CLUSTERDOWN …) is of what was not carried out, or holds would count twice. */
    @ParameterizedTest
    @MethodSource("counted")
    void surprise04WhatIsRetriedWasNotCarriedOut(Case c) throws Exception {
        failover(c.setup()).stage(c).assertWentOn();
    }

    static Stream<About> pubsub() {
        return Stream.of(new About("publish and subscribe", Mode.SINGLE));
    }

    /** Without a leader, too: Redisson cannot take an error for an answer to SUBSCRIBE. */
    @ParameterizedTest
    @MethodSource("pubsub")
    void surprise05SubscribeIsNeverRefused(About a) throws Exception {
        failover(a.setup()).subscribers().assertWentOn();
    }

    static Stream<About> discovery() {
        return Stream.of(Mode.SENTINEL, Mode.REPLICATED, Mode.CLUSTER).map(mode -> new About("discovery", mode));
    }

    /** No error makes Redisson look for the leader; it asks every second, in Cluster mode every five. */
    @ParameterizedTest
    @MethodSource("discovery")
    void surprise13TheLeaderIsFoundByAsking(About a) throws Exception {
        failover(a.setup());
        Control.Addresses now = Control.addresses();
        Endpoint leader = (a.setup() == Mode.CLUSTER ? now.cluster() : now.plain()).get(2);
        var master = switch (a.setup()) {
            case CLUSTER -> a.owner().getRedisNodes(RedisNodes.CLUSTER).getMasters().iterator().next();
            case SENTINEL -> a.owner().getRedisNodes(RedisNodes.SENTINEL_MASTER_SLAVE).getMaster();
            default -> a.owner().getRedisNodes(RedisNodes.MASTER_SLAVE).getMaster();
        };
        assertEquals(leader.port(), master.getAddr().getPort());
    }
}
