package lockstep.conformance.locks;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import lockstep.conformance.ClientUnderTest;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.locks.LockClient.Late;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.util.Pool;

/** ShedLock's providers. They do not wait: a task that is running elsewhere is left out. */
final class ShedLockCases {
    static final String CORE = ClientUnderTest.loadedVersion("net.javacrumbs.shedlock:shedlock-core");
    static final String JEDIS = ClientUnderTest.loadedVersion("net.javacrumbs.shedlock:shedlock-provider-redis-jedis4");
    static final String SPRING = ClientUnderTest.loadedVersion("net.javacrumbs.shedlock:shedlock-provider-redis-spring");

    private ShedLockCases() {}

    static List<Case> all() {
        List<Case> cases = new ArrayList<>();
        cases.add(unified("plain (RedisClient)", JedisCases::plain));
        cases.add(pooled("plain (JedisPool)", JedisCases::pool));
        cases.add(pooled("sentinel (JedisSentinelPool)", JedisCases::sentinelPool));
        cases.add(unified("cluster (RedisClusterClient)", JedisCases::cluster));
        cases.add(unified("plain TLS (RedisClient)", JedisCases::plainTls));
        for (Spring.Mode mode : Spring.MODES) {
            cases.add(spring(mode, false));
        }
        cases.add(spring(Spring.MODES.get(0), true));
        return cases;
    }

    private interface Make<T> {
        T from(Addresses addresses);
    }

    private static Case unified(String mode, Make<UnifiedJedis> make) {
        return jedis(mode, a -> jedis(make.from(a)));
    }

    static ShedLock jedis(UnifiedJedis client) {
        return new ShedLock(new JedisLockProvider(client, "conformance"), Late.HARMFUL, client::close);
    }

    private static Case pooled(String mode, Make<Pool<Jedis>> make) {
        return jedis(mode, a -> {
            Pool<Jedis> pool = make.from(a);
            return new ShedLock(new JedisLockProvider(pool), Late.HARMFUL, pool::close);
        });
    }

    private static Case jedis(String mode, Case.Connect connect) {
        String version = JEDIS + ", " + CORE + ", " + JedisCases.VERSION;
        return new Case("ShedLock Jedis provider", version, mode, connect);
    }

    /** By default it deletes and prolongs without a look at who holds the lock; safeUpdate does so in scripts. */
    private static Case spring(Spring.Mode mode, boolean safe) {
        String name = mode.name() + (safe ? ", safeUpdate" : "");
        return new Case("ShedLock Spring Data Redis provider", SPRING + ", " + Spring.DATA_VERSION, name, a -> {
            RedisConnectionFactory factory = mode.connect(a);
            LockProvider provider = new RedisLockProvider.Builder(factory).safeUpdate(safe).build();
            return new ShedLock(provider, safe ? Late.SILENT : Late.HARMFUL, () -> Spring.close(factory));
        });
    }

    /** A provider and what it is connected by. */
    record ShedLock(LockProvider provider, Late late, Runnable disconnect) implements LockClient {
        @Override
        public Held acquire(String name, Duration ttl, Duration wait) throws Exception {
            return LockClient.retry(wait, () -> lock(name, ttl, Duration.ZERO).map(ShedLock::held).orElse(null));
        }

        Optional<SimpleLock> lock(String name, Duration atMost, Duration atLeast) {
            return provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast));
        }

        private static Held held(SimpleLock lock) {
            // Extending a SimpleLock gives another one in its place.
            AtomicReference<SimpleLock> current = new AtomicReference<>(lock);
            return new Held() {
                @Override
                public void release() {
                    current.get().unlock();
                }

                @Override
                public void extend(Duration ttl) {
                    current.set(current.get().extend(ttl, Duration.ZERO).orElseThrow());
                }
            };
        }

        @Override
        public void close() {
            disconnect.run();
        }
    }
}
