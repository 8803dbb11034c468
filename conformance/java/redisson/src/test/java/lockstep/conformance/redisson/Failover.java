package lockstep.conformance.redisson;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import lockstep.conformance.Control;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import org.redisson.api.RIdGenerator;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTopic;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

import static java.util.concurrent.TimeUnit.SECONDS;

/**
 * One failover in the middle of held and contended objects of every kind in every mode at once. Leases of contended ones are short:
 * a grant whose answer was lost is nobody's until it ends, as with Redis.
 */
final class Failover {
    /** The thread that holds what is held. */
    static final long OWNER = 1017;
    static final int PERMITS = 3;
    private static final int WORKERS = 4;
    static final int RATE = 40;
    private static final long WAIT = 5;
    private static final long LEASE = 8;
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static Failover happened;
    private static volatile long killed = System.nanoTime();

    private final String name = Names.key("failover");
    private final Map<Subject, Stage> stages = new HashMap<>();
    private final Map<Mode, CompletableFuture<?>> latches = new HashMap<>();
    private final Map<Mode, CompletableFuture<?>> waiters = new HashMap<>();
    private final Stage subscribers = new Stage(Mode.SINGLE, 1);

    private Failover() {}

    /** Lets it happen when the first test asks, and once. */
    static synchronized Failover ofAll() throws Exception {
        if (happened == null) {
            happened = new Failover();
            happened.run();
        }
        return happened;
    }

    static Stream<Subject> contended() {
        return Stream.concat(Case.all(), Stream.of("semaphore", "permit-expirable semaphore", "rate limiter", "id generator")
                .flatMap(About::inEveryMode));
    }

    String held(String object) {
        return name + ":held:" + object;
    }

    Stage stage(Subject subject) {
        return stages.get(subject);
    }

    Stage subscribers() {
        return subscribers;
    }

    CompletableFuture<?> latch(Mode mode) {
        return latches.get(mode);
    }

    CompletableFuture<?> waiter(Mode mode) {
        return waiters.get(mode);
    }

    private void run() throws Exception {
        for (Case c : Case.all().filter(Failover::isAvailable).toList()) {
            hold(c);
        }
        for (Mode mode : Mode.PLAIN) {
            hold(mode);
        }
        contended().filter(Failover::isAvailable).forEach(subject -> stages.put(subject, contend(subject)));
        subscribers.start(subscriber());
        Thread.sleep(1500);
        killed = System.nanoTime();
        Control.failover();
        List<Stage> all = Stream.concat(stages.values().stream(), Stream.of(subscribers)).toList();
        all.forEach(Stage::failedOver);
        replaceLostPermits();
        long start = System.nanoTime();
        while (System.nanoTime() - start < PATIENCE.toNanos() && !all.stream().allMatch(Stage::goesOn)) {
            Thread.sleep(50);
        }
        all.forEach(Stage::stop);
        for (Stage stage : all) {
            stage.join();
        }
    }

    /** A permit without a lease that nobody knows to be his is lost, with Redis too: an operator gives new ones. */
    private void replaceLostPermits() {
        About.inEveryMode("semaphore").forEach(a -> {
            stages.get(a).widen(WORKERS);
            a.owner().getSemaphore(name + ":" + a).addPermits(WORKERS);
        });
    }

    /** When something happened: seconds since the leader was killed. */
    static String clock() {
        return "%+.1fs".formatted(Wait.since(killed).toMillis() / 1000.0);
    }

    private static boolean isAvailable(Subject subject) {
        return (subject instanceof Case c ? c.setup() : ((About) subject).setup()).isAvailable();
    }

    /** What is taken before and must be there afterwards. Locks have no lease: the watchdog renews them. */
    private void hold(Case c) throws Exception {
        RLock lock = c.lock(held(c.kind() + ":" + c.setup()));
        for (int i = 0; i < (c.kind().isReentrant() ? 2 : 1); i++) {
            if (!lock.tryLockAsync(OWNER).get(30, SECONDS)) {
                throw new IllegalStateException("not granted: " + c);
            }
        }
    }

    private void hold(Mode mode) throws Exception {
        RedissonClient owner = Redissons.owner(mode);
        RSemaphore semaphore = owner.getSemaphore(held("semaphore:" + mode));
        semaphore.trySetPermits(PERMITS);
        semaphore.acquire(PERMITS - 1);
        waiters.put(mode, Redissons.other(mode).getSemaphore(semaphore.getName()).acquireAsync(PERMITS).toCompletableFuture());
        owner.getCountDownLatch(held("latch:" + mode)).trySetCount(1);
        latches.put(mode, Redissons.other(mode).getCountDownLatch(held("latch:" + mode)).awaitAsync().toCompletableFuture());
        RPermitExpirableSemaphore permits = owner.getPermitExpirableSemaphore(held("permits:" + mode));
        permits.trySetPermits(PERMITS);
        permits.acquire(PERMITS - 1, 600, SECONDS);
        owner.getRateLimiter(held("limiter:" + mode)).trySetRate(RateType.OVERALL, RATE, Duration.ofMinutes(10));
        owner.getIdGenerator(held("ids:" + mode)).tryInit(1, 3);
    }

    private Stage contend(Subject subject) {
        if (subject instanceof Case c && c.kind() == LockKind.READ) {
            Stage stage = new Stage(c.setup(), WORKERS);
            AtomicInteger writers = new AtomicInteger();
            for (RedissonClient client : List.of(c.owner(), c.other(), c.owner())) {
                stage.start(locker(c, c.kind().of(client, name + ":" + c), false, writers));
            }
            stage.start(locker(c, c.rival(name + ":" + c), true, writers));
            return stage;
        }
        if (subject instanceof Case c) {
            Stage stage = new Stage(c.setup(), 1);
            for (RedissonClient client : List.of(c.owner(), c.other(), c.owner())) {
                stage.start(locker(c, c.kind().of(client, name + ":" + c), false, new AtomicInteger()));
            }
            return stage;
        }
        About a = (About) subject;
        boolean shared = a.object().equals("rate limiter") || a.object().equals("id generator");
        // Outside single mode a release that is sent again may count twice, with Redis too.
        boolean twice = a.object().equals("semaphore") && a.setup() != Mode.SINGLE;
        Stage stage = new Stage(a.setup(), shared || twice ? WORKERS : a.object().equals("semaphore") ? PERMITS : 1);
        Set<Long> ids = ConcurrentHashMap.newKeySet();
        a.owner().getSemaphore(name + ":" + a).trySetPermits(PERMITS);
        a.owner().getPermitExpirableSemaphore(name + ":permits:" + a).trySetPermits(1);
        for (RedissonClient client : List.of(a.owner(), a.other(), a.owner(), a.other())) {
            stage.start(switch (a.object()) {
                case "semaphore" -> semaphore(client.getSemaphore(name + ":" + a));
                case "permit-expirable semaphore" -> permit(client.getPermitExpirableSemaphore(name + ":permits:" + a));
                case "rate limiter" -> limiter(client, a.setup());
                default -> generator(client.getIdGenerator(held("ids:" + a.setup())), ids);
            });
        }
        return stage;
    }

    /** Beside one who writes there is nobody. */
    private static Stage.Gate locker(Case c, RLock lock, boolean writes, AtomicInteger writers) {
        return new Stage.Gate() {
            @Override
            public boolean enter() throws Exception {
                return lock.tryLock(WAIT, LEASE, SECONDS);
            }

            @Override
            public void inside(Stage stage) throws InterruptedException {
                if (writes) {
                    writers.incrementAndGet();
                    Thread.sleep(5);
                    stage.assertAlone();
                    writers.decrementAndGet();
                } else if (writers.get() > 0) {
                    stage.fault("reads beside a writer");
                }
                if (c.setup().isSingle() && c.kind().countsHolds()) {
                    int count = lock.getHoldCount();
                    if (count != 1) {
                        stage.fault("entered once, counted " + count);
                    }
                }
            }

            @Override
            public void leave() {
                lock.unlock();
            }

            /** A non-reentrant lock takes every error for its own, because Redisson's messages quote the script's arguments. */
            @Override
            public boolean isUnknown(Exception e) {
                return Stage.Gate.super.isUnknown(e) || !c.kind().isReentrant() && e instanceof IllegalMonitorStateException;
            }

            @Override
            public void recover() {
                if (lock.isHeldByCurrentThread()) {
                    lock.unlock();
                }
            }
        };
    }

    private static Stage.Gate semaphore(RSemaphore semaphore) {
        return new Stage.Gate() {
            @Override
            public boolean enter() throws Exception {
                return semaphore.tryAcquire(1, Duration.ofSeconds(WAIT));
            }

            @Override
            public void leave() {
                semaphore.release();
            }
        };
    }

    private static Stage.Gate permit(RPermitExpirableSemaphore semaphore) {
        return new Stage.Gate() {
            private String permit;

            @Override
            public boolean enter() throws Exception {
                permit = semaphore.tryAcquire(WAIT, LEASE, SECONDS);
                return permit != null;
            }

            @Override
            public void leave() {
                semaphore.tryRelease(permit); // false if it was sent again
            }
        };
    }

    /** Never more than the rate is granted; asking goes on when there is nothing left. */
    private Stage.Gate limiter(RedissonClient client, Mode mode) {
        return new Stage.Gate() {
            @Override
            public boolean enter() {
                return true;
            }

            @Override
            public void inside(Stage stage) {
                if (client.getRateLimiter(held("limiter:" + mode)).tryAcquire()) {
                    stage.granted(RATE);
                }
            }

            @Override
            public void leave() {}
        };
    }

    private static Stage.Gate generator(RIdGenerator generator, Set<Long> ids) {
        return new Stage.Gate() {
            @Override
            public boolean enter() {
                return true;
            }

            @Override
            public void inside(Stage stage) {
                long id = generator.nextId();
                if (!ids.add(id)) {
                    stage.fault("given twice: " + id);
                }
            }

            @Override
            public void leave() {}
        };
    }

    /** Subscribes to a channel that is new to the node, and leaves it. */
    private static Stage.Gate subscriber() {
        return new Stage.Gate() {
            private RTopic topic;
            private int listener;

            @Override
            public boolean enter() {
                topic = Redissons.owner().getTopic(Names.key("topic"), StringCodec.INSTANCE);
                listener = topic.addListener(String.class, (channel, message) -> { });
                return true;
            }

            @Override
            public void leave() {
                topic.removeListener(listener);
            }
        };
    }
}
