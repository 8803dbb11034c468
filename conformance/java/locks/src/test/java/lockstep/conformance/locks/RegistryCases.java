package lockstep.conformance.locks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import lockstep.conformance.Control.Addresses;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;

/** Spring Integration's RedisLockRegistry in both of its modes, on Lettuce and on Jedis. */
final class RegistryCases {
    static final String VERSION = RedisLockRegistry.class.getPackage().getImplementationVersion();
    static final String REGISTRY = "conformance-registry";

    private RegistryCases() {}

    static List<Case> all() {
        List<Case> cases = new ArrayList<>();
        for (RedisLockType type : RedisLockType.values()) {
            for (Spring.Mode mode : Spring.MODES) {
                cases.add(new Case("Spring Integration RedisLockRegistry " + type, VERSION + ", " + mode.version(), mode.name(),
                        addresses -> new Registry(mode, type, addresses)));
            }
        }
        return cases;
    }

    /**
     * A registry with a connection factory of its own, as a process has it. The registry's locks belong to threads, so
     * each lock that is held has one.
     */
    static final class Registry implements LockClient {
        private final RedisConnectionFactory factory;
        private final RedisLockRegistry registry;

        Registry(Spring.Mode mode, RedisLockType type, Addresses addresses) {
            factory = mode.connect(addresses);
            registry = new RedisLockRegistry(factory, REGISTRY);
            registry.setRedisLockType(type);
        }

        RedisLockRegistry registry() {
            return registry;
        }

        @Override
        public Held acquire(String name, Duration ttl, Duration wait) throws Exception {
            ExecutorService owner = Executors.newSingleThreadExecutor();
            DistributedLock lock = registry.obtain(name);
            boolean got = false;
            try {
                got = in(owner, () -> lock.tryLock(wait, ttl));
            } finally {
                if (!got) {
                    owner.shutdown();
                }
            }
            return got ? held(name, lock, owner) : null;
        }

        private Held held(String name, DistributedLock lock, ExecutorService owner) {
            return new Held() {
                @Override
                public void release() throws Exception {
                    try {
                        in(owner, Executors.callable(lock::unlock));
                    } finally {
                        owner.shutdown();
                    }
                }

                @Override
                public void extend(Duration ttl) throws Exception {
                    in(owner, Executors.callable(() -> registry.renewLock(name, ttl)));
                }
            };
        }

        private static <T> T in(ExecutorService owner, Callable<T> call) throws Exception {
            try {
                return owner.submit(call).get();
            } catch (ExecutionException e) {
                if (e.getCause() instanceof Exception cause) {
                    throw cause;
                }
                throw e;
            }
        }

        @Override
        public Late late() {
            return Late.refused(ConcurrentModificationException.class);
        }

        @Override
        public void close() {
            registry.destroy();
            Spring.close(factory);
        }
    }
}
