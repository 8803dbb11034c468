package lockstep.conformance.redisson;

import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import lockstep.conformance.Control;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Objects that are held, and that another client wants, as LOCK.LIST and its kin show them. */
@ExtendWith(Redissons.class)
class SightTest {
    private final String name = Names.key("sight");

    static Stream<About> semaphores() {
        return About.inEveryMode("semaphore");
    }

    static Stream<About> permits() {
        return About.inEveryMode("permit-expirable semaphore");
    }

    static Stream<About> latches() {
        return About.inEveryMode("count-down latch");
    }

    /** Starts the waiter, asks the harness, and then lets the waiter have it. */
    private static void look(Subject subject, Callable<Boolean> waiter, String key, String kind, String owner, String queue, Runnable leave)
            throws Exception {
        Future<Boolean> waiting = Wait.start(waiter);
        try {
            Control.sight(subject, key, kind, owner, queue);
        } finally {
            leave.run();
        }
        assertTrue(waiting.get(60, SECONDS), "the other client did not get it");
    }

    @ParameterizedTest
    @MethodSource("lockstep.conformance.redisson.Case#all")
    void sight(Case c) throws Exception {
        Control.assumeSightIsPossible();
        RLock lock = c.lock(name);
        RLock rival = c.rival(name);
        lock.lock(90, SECONDS);
        LockKind kind = c.kind();
        String owner = c.owner().getId() + ":" + Thread.currentThread().getId() + (kind == LockKind.WRITE ? ":write" : "");
        String key = kind.isOneKey() ? name : name + ":1"; // the first of several locks
        look(c, () -> {
            boolean got = rival.tryLock(60, 90, SECONDS);
            if (got) {
                rival.unlock();
            }
            return got;
        }, key, kindOf(kind), owner, kind.isOneKey() ? queueOf(kind) : "", lock::unlock);
    }

    private static String kindOf(LockKind kind) {
        return switch (kind) {
            case FAIR, NON_REENTRANT_FAIR -> "redisson-fair";
            case READ, WRITE -> "redisson-readwrite";
            case FENCED -> "redisson-fenced";
            case FASTER_MULTI -> "redisson-group";
            default -> "redisson";
        };
    }

    private static String queueOf(LockKind kind) {
        return kind.isFair() ? "redisson" : kind == LockKind.SPIN ? "poller" : "subscriber";
    }

    @ParameterizedTest
    @MethodSource("semaphores")
    void semaphore(About a) throws Exception {
        Control.assumeSightIsPossible();
        RSemaphore semaphore = a.owner().getSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        semaphore.acquire();
        look(a, () -> {
            a.other().getSemaphore(name).acquire();
            return true;
        }, name, "redisson-semaphore", "", "subscriber", semaphore::release);
    }

    @ParameterizedTest
    @MethodSource("permits")
    void permit(About a) throws Exception {
        Control.assumeSightIsPossible();
        RPermitExpirableSemaphore semaphore = a.owner().getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        String mine = semaphore.acquire(90, SECONDS);
        look(a, () -> a.other().getPermitExpirableSemaphore(name).acquire(60, SECONDS) != null,
                name, "redisson-semaphore", mine, "subscriber", () -> semaphore.release(mine));
    }

    @ParameterizedTest
    @MethodSource("latches")
    void latch(About a) throws Exception {
        Control.assumeSightIsPossible();
        RCountDownLatch latch = a.owner().getCountDownLatch(name);
        assertTrue(latch.trySetCount(1));
        look(a, () -> a.other().getCountDownLatch(name).await(60, SECONDS),
                name, "redisson-latch", "", "subscriber", latch::countDown);
    }
}
