package lockstep.conformance.locks;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.BiFunction;
import lockstep.conformance.Control;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Fencing;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.support.locks.DistributedLock;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.util.SafeEncoder;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** docs/fencing.md with ShedLock and Spring's RedisLockRegistry, which do not tell the value that they write. */
class FencingTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    /** A library in a mode. */
    record Setup(Case about, BiFunction<Addresses, String, Client> make) implements Subject {
        @Override
        public String client() {
            return about.client();
        }

        @Override
        public String version() {
            return about.version();
        }

        @Override
        public String mode() {
            return about.mode();
        }

        @Override
        public String toString() {
            return about.toString();
        }

        Client connect(String name) {
            return make.apply(Control.addresses(), name);
        }
    }

    static List<Setup> cases() {
        List<Setup> cases = new ArrayList<>();
        for (Case about : ShedLockCases.all()) {
            if (about.client().contains("Spring")) {
                Spring.MODES.stream().filter(mode -> mode.name().equals(about.mode()))
                        .forEach(mode -> cases.add(new Setup(about, (a, name) -> new SpringShedLock(mode.connect(a), name))));
            } else if (about.mode().equals("plain (RedisClient)")) {
                cases.add(new Setup(about, (a, name) -> new JedisShedLock(JedisCases.plain(a), name)));
            } else if (about.mode().equals("cluster (RedisClusterClient)")) {
                cases.add(new Setup(about, (a, name) -> new JedisShedLock(JedisCases.cluster(a), name)));
            }
        }
        RegistryCases.all().stream().filter(about -> about.client().endsWith("SPIN_LOCK")).forEach(about ->
                Spring.MODES.stream().filter(mode -> mode.name().equals(about.mode()))
                        .forEach(mode -> cases.add(new Setup(about, (a, name) -> new Registry(mode.connect(a), name)))));
        return cases;
    }

    static List<Setup> shedLocks() {
        return cases().stream().filter(setup -> setup.client().startsWith("ShedLock")).toList();
    }

    private static Fencing.Connect owners(Setup setup) {
        setup.about().assumeAvailable();
        String name = Names.key("fenced");
        return () -> setup.connect(name);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void fencingSqlDatabase(Setup setup) throws Exception {
        Fencing.sqlDatabase(owners(setup));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void fencingLockFence(Setup setup) throws Exception {
        Fencing.lockFence(owners(setup));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void fencingLockAndDataInOneScript(Setup setup) throws Exception {
        Fencing.lockAndDataInOneScript(owners(setup));
    }

    /** The provider for Jedis writes another value at each extension, and so the lock gets another token. */
    @ParameterizedTest
    @MethodSource("shedLocks")
    void tokenOfAnExtendedLock(Setup setup) throws Exception {
        Fencing.assumeTokens();
        setup.about().assumeAvailable();
        try (Client client = setup.connect(Names.key("fenced"))) {
            long before = client.take().token();
            client.extend();
            long after = client.eval("return redis.call('LOCK.TOKEN', KEYS[1])", List.of(client.key()));
            assertEquals(client instanceof JedisShedLock, after > before, after + " after " + before);
            assertTrue(after >= before);
        }
    }

    /** A client of a lock. */
    private abstract static class Client implements Fencing.Client {
        protected final String name;

        Client(String name) {
            this.name = name;
        }

        /** Waits while another client holds the lock. */
        @Override
        public Fencing.Held take() throws Exception {
            long start = System.nanoTime();
            while (true) {
                try {
                    return tryTake();
                } catch (NoSuchElementException taken) {
                    Wait.assertAtMost(Wait.SLACK, Wait.since(start), "not granted");
                    Thread.sleep(20);
                }
            }
        }

        abstract Fencing.Held tryTake() throws Exception;

        void extend() {
            throw new UnsupportedOperationException();
        }
    }

    private abstract static class ShedLock extends Client {
        protected final Duration atMost = LEASE;
        protected final Duration atLeast = Duration.ZERO;
        protected SimpleLock held;

        ShedLock(String name) {
            super(name);
        }

        @Override
        void extend() {
            held = held.extend(LEASE, Duration.ZERO).orElseThrow();
        }
    }

    private static Long eval(StringRedisTemplate redis, String script, List<String> keys, String... args) {
        return redis.execute(RedisScript.of(script, Long.class), keys, (Object[]) args);
    }

    private static final class SpringShedLock extends ShedLock {
        private final RedisConnectionFactory factory;
        private final StringRedisTemplate redis;
        private final LockProvider provider;

        SpringShedLock(RedisConnectionFactory factory, String name) {
            super(name);
            this.factory = factory;
            redis = new StringRedisTemplate(factory);
            provider = new RedisLockProvider.Builder(factory).build();
        }

        @Override
        public String key() {
            return "job-lock:default:" + name;
        }

        @Override
        Fencing.Held tryTake() {
            long asked = System.nanoTime();
            SimpleLock lock = provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast)).orElseThrow();
            Long token = redis.execute(RedisScript.of("return redis.call('LOCK.TOKEN', KEYS[1])", Long.class), List.of("job-lock:default:" + name));
            boolean mine = System.nanoTime() - asked < atMost.toNanos();
            assertTrue(mine);
            held = lock;
            return new Fencing.Held(redis.opsForValue().get(key()), token, lock::unlock);
        }

        @Override
        public Long eval(String script, List<String> keys, String... args) {
            return FencingTest.eval(redis, script, keys, args);
        }

        @Override
        public void close() {
            Spring.close(factory);
        }
    }

    private static final class JedisShedLock extends ShedLock {
        private final UnifiedJedis jedis;
        private final LockProvider provider;

        JedisShedLock(UnifiedJedis jedis, String name) {
            super(name);
            this.jedis = jedis;
            provider = new JedisLockProvider(jedis, "conformance");
        }

        @Override
        public String key() {
            return "job-lock:conformance:" + name;
        }

        @Override
        Fencing.Held tryTake() {
            held = provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast)).orElseThrow();
            Object token = jedis.executeCommand(new CommandArguments(() -> SafeEncoder.encode("LOCK.TOKEN")).key(key()));
            return new Fencing.Held(jedis.get(key()), (Long) token, held::unlock);
        }

        @Override
        public Long eval(String script, List<String> keys, String... args) {
            return (Long) jedis.eval(script, keys, List.of(args));
        }

        @Override
        public void close() {
            jedis.close();
        }
    }

    private static final class Registry extends Client {
        private final RedisConnectionFactory factory;
        private final StringRedisTemplate redis;
        private final RedisLockRegistry registry;

        Registry(RedisConnectionFactory factory, String name) {
            super(name);
            this.factory = factory;
            redis = new StringRedisTemplate(factory);
            registry = new RedisLockRegistry(factory, RegistryCases.REGISTRY);
        }

        @Override
        public String key() {
            return RegistryCases.REGISTRY + ":" + name;
        }

        @Override
        Fencing.Held tryTake() throws Exception {
            DistributedLock lock = registry.obtain(name);
            if (!lock.tryLock(Wait.SLACK, LEASE)) {
                throw new NoSuchElementException();
            }
            Long token = eval("return redis.call('LOCK.TOKEN', KEYS[1])", List.of(key()));
            return new Fencing.Held(redis.opsForValue().get(key()), token, lock::unlock);
        }

        @Override
        public Long eval(String script, List<String> keys, String... args) {
            return FencingTest.eval(redis, script, keys, args);
        }

        @Override
        public void close() {
            registry.destroy();
            Spring.close(factory);
        }
    }
}
