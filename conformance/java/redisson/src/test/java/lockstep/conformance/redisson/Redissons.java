package lockstep.conformance.redisson;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The Redisson clients that the tests share, because a client is a pool of dozens of connections; made when first
 * asked for and shut down after the last test. Each is in single-server mode with nothing set but the address.
 */
final class Redissons implements BeforeAllCallback {
    private static final Map<String, RedissonClient> SHARED = new ConcurrentHashMap<>();

    /** The client that holds the locks, connected to the first node. */
    static RedissonClient owner() {
        return shared("owner", Endpoints.first());
    }

    /** Another process, as far as Redisson is concerned, connected to the first node too. */
    static RedissonClient other() {
        return shared("other", Endpoints.first());
    }

    /** A client of the i-th node; never the same client for two values of i. */
    static RedissonClient node(int i) {
        return shared("node" + i, Endpoints.node(i));
    }

    /** A client that is not shared. */
    static RedissonClient create(Endpoint endpoint) {
        Config config = new Config();
        config.useSingleServer().setAddress(endpoint.uri());
        return Redisson.create(config);
    }

    private static RedissonClient shared(String name, Endpoint endpoint) {
        return SHARED.computeIfAbsent(name, unused -> create(endpoint));
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        context.getRoot().getStore(ExtensionContext.Namespace.GLOBAL)
                .getOrComputeIfAbsent(Redissons.class, unused -> (AutoCloseable) Redissons::shutdown);
    }

    private static void shutdown() {
        SHARED.values().forEach(RedissonClient::shutdown);
        SHARED.clear();
    }
}
