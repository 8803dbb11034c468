package lockstep.conformance.locks;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SslOptions;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.async.RedisClusterAsyncCommands;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import lockstep.conformance.ClientUnderTest;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Trust;

/** Lettuce, blocking and not, in all its kinds of connections. */
final class LettuceCases {
    static final String VERSION = ClientUnderTest.loadedVersion("io.lettuce:lettuce-core");
    /** Threads: Lettuce wants them to be shared. */
    static final ClientResources RESOURCES = ClientResources.create();

    private LettuceCases() {}

    /** Both ways to call a connection, and how to be rid of it. */
    record Connection(RedisClusterCommands<String, String> sync, RedisClusterAsyncCommands<String, String> async,
            Runnable close) {
        static Connection of(AbstractRedisClient client, io.lettuce.core.api.StatefulRedisConnection<String, String> made) {
            return new Connection(made.sync(), made.async(), () -> close(client));
        }

        private static void close(AbstractRedisClient client) {
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    private interface Connect {
        Connection to(Addresses addresses);
    }

    static List<Case> all() {
        List<Case> cases = new ArrayList<>();
        add(cases, "plain RESP3", a -> plain(a, ProtocolVersion.RESP3));
        add(cases, "plain RESP2", a -> plain(a, ProtocolVersion.RESP2));
        add(cases, "MasterReplica", a -> masterReplica(uri(a.plain().get(0))));
        add(cases, "sentinel", LettuceCases::sentinel);
        add(cases, "sentinel (MasterReplica)", a -> masterReplica(sentinelUri(a)));
        add(cases, "cluster", LettuceCases::cluster);
        add(cases, "plain TLS", LettuceCases::plainTls);
        add(cases, "sentinel TLS", LettuceCases::sentinelTls);
        add(cases, "cluster TLS", LettuceCases::clusterTls);
        return cases;
    }

    private static void add(List<Case> cases, String mode, Connect connect) {
        cases.add(new Case("Lettuce SET NX PX + script", VERSION, mode, a -> new Recipe(new Sync(connect.to(a)))));
        cases.add(new Case("Lettuce SET NX PX + script (async)", VERSION, mode, a -> new Recipe(new Async(connect.to(a)))));
    }

    static RedisURI uri(Endpoint endpoint) {
        return RedisURI.create(endpoint.host(), endpoint.port());
    }

    /** As programs write it: redis-sentinel://host:port,host:port#name. */
    static RedisURI sentinelUri(Addresses addresses) {
        return RedisURI.create("redis-sentinel://" + addresses.sentinels().stream().map(Endpoint::toString)
                .collect(Collectors.joining(",")) + "#" + Endpoints.MASTER);
    }

    static Connection plain(Addresses addresses, ProtocolVersion protocol) {
        RedisClient client = RedisClient.create(RESOURCES, uri(addresses.plain().get(0)));
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        return Connection.of(client, client.connect());
    }

    private static Connection sentinel(Addresses addresses) {
        RedisClient client = RedisClient.create(RESOURCES, sentinelUri(addresses));
        return Connection.of(client, client.connect());
    }

    private static Connection masterReplica(RedisURI uri) {
        RedisClient client = RedisClient.create(RESOURCES);
        return Connection.of(client, MasterReplica.connect(client, StringCodec.UTF8, uri));
    }

    /** Lettuce verifies the chain and, unless told otherwise, the name. */
    static SslOptions secret() {
        return SslOptions.builder().jdkSslProvider().trustManager(Trust.authority()).keyManager(Trust.certificate()).build();
    }

    private static Connection plainTls(Addresses addresses) {
        RedisClient client = RedisClient.create(RESOURCES, RedisURI.create(addresses.tls().plain().get(0).secretUri()));
        client.setOptions(ClientOptions.builder().sslOptions(secret()).build());
        return Connection.of(client, client.connect());
    }

    private static Connection sentinelTls(Addresses addresses) {
        RedisURI.Builder uri = RedisURI.builder().withSentinelMasterId(Endpoints.MASTER).withSsl(true);
        addresses.tls().sentinels().forEach(s -> uri.withSentinel(RedisURI.create(s.secretUri())));
        RedisClient client = RedisClient.create(RESOURCES, uri.build());
        client.setOptions(ClientOptions.builder().sslOptions(secret()).build());
        return Connection.of(client, client.connect());
    }

    static Connection cluster(Addresses addresses) {
        return cluster(addresses.cluster().stream().map(LettuceCases::uri), ClusterClientOptions.builder());
    }

    private static Connection clusterTls(Addresses addresses) {
        return cluster(addresses.tls().cluster().stream().map(Endpoint::secretUri).map(RedisURI::create),
                ClusterClientOptions.builder().sslOptions(secret()));
    }

    private static Connection cluster(Stream<RedisURI> uris, ClusterClientOptions.Builder options) {
        RedisClusterClient client = RedisClusterClient.create(RESOURCES, uris.toList());
        client.setOptions(options.topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                .enablePeriodicRefresh(Duration.ofSeconds(10)).enableAllAdaptiveRefreshTriggers().build()).build());
        StatefulRedisClusterConnection<String, String> made = client.connect();
        return new Connection(made.sync(), made.async(), () -> Connection.close(client));
    }

    /** EVALSHA first and the text only when the server does not have it: what most libraries on Lettuce do. */
    private record Sync(Connection connection) implements Recipe.Commands {
        @Override
        public boolean setIfAbsent(String key, String value, long milliseconds) {
            return "OK".equals(connection.sync().set(key, value, SetArgs.Builder.nx().px(milliseconds)));
        }

        @Override
        public long eval(String script, String key, String... args) {
            String[] keys = {key};
            try {
                return connection.sync().<Long>evalsha(connection.sync().digest(script), ScriptOutputType.INTEGER, keys, args);
            } catch (RedisNoScriptException e) {
                return connection.sync().<Long>eval(script, ScriptOutputType.INTEGER, keys, args);
            }
        }

        @Override
        public void close() {
            connection.close().run();
        }
    }

    private record Async(Connection connection) implements Recipe.Commands {
        @Override
        public boolean setIfAbsent(String key, String value, long milliseconds) throws Exception {
            return "OK".equals(get(connection.async().set(key, value, SetArgs.Builder.nx().px(milliseconds))));
        }

        @Override
        public long eval(String script, String key, String... args) throws Exception {
            String[] keys = {key};
            return get(connection.async().<Long>eval(script, ScriptOutputType.INTEGER, keys, args));
        }

        private static <T> T get(io.lettuce.core.RedisFuture<T> future) throws Exception {
            try {
                return future.get(60, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                if (e.getCause() instanceof Exception cause) {
                    throw cause;
                }
                throw e;
            }
        }

        @Override
        public void close() {
            connection.close().run();
        }
    }
}
