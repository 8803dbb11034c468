package lockstep.conformance.redisson;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import lockstep.conformance.Control;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The Redisson clients that the tests share, because a client is a pool of dozens of connections; made when first
 * asked for and shut down after the last test.
 */
final class Redissons implements BeforeAllCallback {
    private static final Map<String, RedissonClient> SHARED = new ConcurrentHashMap<>();

    /** The client that holds the locks. */
    static RedissonClient owner(Mode mode) {
        return shared(mode, "owner");
    }

    /** Another process, as far as Redisson is concerned. */
    static RedissonClient other(Mode mode) {
        return shared(mode, "other");
    }

    private static RedissonClient shared(Mode mode, String name) {
        mode.assumeAvailable();
        return SHARED.computeIfAbsent(mode + " " + name, unused -> create(mode));
    }

    /** A client that is not shared. */
    static RedissonClient create(Mode mode) {
        return Redisson.create(mode.config(Control.addresses()));
    }

    /** The owner in single-server mode, connected to the first node. */
    static RedissonClient owner() {
        return owner(Mode.SINGLE);
    }

    static RedissonClient other() {
        return other(Mode.SINGLE);
    }

    /** A single-server client of the i-th node; never the same client for two values of i. */
    static RedissonClient node(int i) {
        return SHARED.computeIfAbsent("node" + i, unused -> create(Endpoints.node(i)));
    }

    static RedissonClient create(Endpoint endpoint) {
        Config config = new Config();
        config.useSingleServer().setAddress(endpoint.uri());
        return Redisson.create(config);
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        context.getRoot().getStore(ExtensionContext.Namespace.GLOBAL)
                .getOrComputeIfAbsent(Redissons.class, unused -> (AutoCloseable) Redissons::shutdown);
    }

    private static void shutdown() {
        SHARED.values().parallelStream().forEach(RedissonClient::shutdown);
        SHARED.clear();
    }
}
