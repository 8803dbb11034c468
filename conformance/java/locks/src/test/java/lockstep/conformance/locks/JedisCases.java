package lockstep.conformance.locks;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import javax.net.ssl.SSLSocketFactory;
import lockstep.conformance.ClientUnderTest;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Trust;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.util.Pool;

/** Jedis: the clients of today, and the pools of old, which are in most programs. */
final class JedisCases {
    static final String VERSION = ClientUnderTest.loadedVersion("redis.clients:jedis");
    private static final String CLIENT = "Jedis SET NX PX + script";

    private JedisCases() {}

    static List<Case> all() {
        return List.of(
                unified("plain (RedisClient)", JedisCases::plain),
                unified("plain RESP2 (RedisClient)", JedisCases::plainResp2),
                pooled("plain (JedisPool)", JedisCases::pool),
                unified("sentinel (RedisSentinelClient)", JedisCases::sentinel),
                pooled("sentinel (JedisSentinelPool)", JedisCases::sentinelPool),
                unified("cluster (RedisClusterClient)", JedisCases::cluster),
                unified("cluster (JedisCluster)", a -> new JedisCluster(hosts(a.cluster()))),
                unified("plain TLS (RedisClient)", JedisCases::plainTls),
                pooled("plain TLS (JedisPool)", a -> new JedisPool(host(a.tls().plain().get(0)), secret())),
                unified("sentinel TLS (RedisSentinelClient)", JedisCases::sentinelTls),
                unified("cluster TLS (RedisClusterClient)", JedisCases::clusterTls));
    }

    private interface Make<T> {
        T from(Addresses addresses);
    }

    private static Case unified(String mode, Make<UnifiedJedis> make) {
        return new Case(CLIENT, VERSION, mode, a -> new Recipe(commands(make.from(a))));
    }

    private static Case pooled(String mode, Make<Pool<Jedis>> make) {
        return new Case(CLIENT, VERSION, mode, a -> new Recipe(commands(make.from(a))));
    }

    static UnifiedJedis plain(Addresses addresses) {
        return RedisClient.create(host(addresses.plain().get(0)));
    }

    private static UnifiedJedis plainResp2(Addresses addresses) {
        return RedisClient.builder().hostAndPort(host(addresses.plain().get(0)))
                .clientConfig(DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP2).build()).build();
    }

    static Pool<Jedis> pool(Addresses addresses) {
        Endpoint node = addresses.plain().get(0);
        return new JedisPool(node.host(), node.port());
    }

    static UnifiedJedis sentinel(Addresses addresses) {
        return RedisSentinelClient.builder().masterName(Endpoints.MASTER).sentinels(hosts(addresses.sentinels())).build();
    }

    static Pool<Jedis> sentinelPool(Addresses addresses) {
        return new JedisSentinelPool(Endpoints.MASTER,
                addresses.sentinels().stream().map(Endpoint::toString).collect(Collectors.toSet()));
    }

    static UnifiedJedis cluster(Addresses addresses) {
        return RedisClusterClient.create(hosts(addresses.cluster()));
    }

    /** As a program sets it, with the name of the node checked. */
    static JedisClientConfig secret() {
        return secret(Trust.sockets());
    }

    static JedisClientConfig secret(SSLSocketFactory sockets) {
        return DefaultJedisClientConfig.builder().ssl(true).sslSocketFactory(sockets).sslParameters(Trust.parameters()).build();
    }

    static UnifiedJedis plainTls(Addresses addresses) {
        return RedisClient.builder().hostAndPort(host(addresses.tls().plain().get(0))).clientConfig(secret()).build();
    }

    private static UnifiedJedis sentinelTls(Addresses addresses) {
        return RedisSentinelClient.builder().masterName(Endpoints.MASTER).sentinels(hosts(addresses.tls().sentinels()))
                .clientConfig(secret()).sentinelClientConfig(secret()).build();
    }

    private static UnifiedJedis clusterTls(Addresses addresses) {
        return RedisClusterClient.builder().nodes(hosts(addresses.tls().cluster())).clientConfig(secret()).build();
    }

    static Set<HostAndPort> hosts(List<Endpoint> endpoints) {
        return endpoints.stream().map(JedisCases::host).collect(Collectors.toSet());
    }

    static HostAndPort host(Endpoint endpoint) {
        return new HostAndPort(endpoint.host(), endpoint.port());
    }

    private static Recipe.Commands commands(UnifiedJedis client) {
        return new Recipe.Commands() {
            @Override
            public boolean setIfAbsent(String key, String value, long milliseconds) {
                return "OK".equals(client.set(key, value, SetParams.setParams().nx().px(milliseconds)));
            }

            @Override
            public long eval(String script, String key, String... args) {
                return (Long) client.eval(script, List.of(key), List.of(args));
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }

    private static Recipe.Commands commands(Pool<Jedis> pool) {
        return new Recipe.Commands() {
            @Override
            public boolean setIfAbsent(String key, String value, long milliseconds) {
                try (Jedis jedis = pool.getResource()) {
                    return "OK".equals(jedis.set(key, value, SetParams.setParams().nx().px(milliseconds)));
                }
            }

            @Override
            public long eval(String script, String key, String... args) {
                try (Jedis jedis = pool.getResource()) {
                    return (Long) jedis.eval(script, List.of(key), List.of(args));
                }
            }

            @Override
            public void close() {
                pool.close();
            }
        };
    }
}
