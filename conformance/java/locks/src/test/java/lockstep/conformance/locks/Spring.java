package lockstep.conformance.locks;

import io.lettuce.core.ClientOptions;
import java.util.List;
import java.util.function.Function;
import lockstep.conformance.ClientUnderTest;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisConfiguration;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisNode;
import org.springframework.data.redis.connection.RedisSentinelConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration.LettuceClientConfigurationBuilder;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** Spring Data Redis: connection factories as a Spring program configures them. */
final class Spring {
    static final String DATA_VERSION = ClientUnderTest.loadedVersion("org.springframework.data:spring-data-redis");
    static final List<Mode> MODES = List.of(
            new Mode("plain (Lettuce)", LettuceCases.VERSION, a -> lettuce(plain(a))),
            new Mode("sentinel (Lettuce)", LettuceCases.VERSION, a -> lettuce(sentinel(a))),
            new Mode("cluster (Lettuce)", LettuceCases.VERSION, a -> lettuce(cluster(a))),
            new Mode("plain (Jedis)", JedisCases.VERSION, a -> jedis(new JedisConnectionFactory(plain(a)))),
            new Mode("sentinel (Jedis)", JedisCases.VERSION, a -> jedis(new JedisConnectionFactory(sentinel(a)))),
            new Mode("cluster (Jedis)", JedisCases.VERSION, a -> jedis(new JedisConnectionFactory(cluster(a)))),
            new Mode("plain TLS (Lettuce)", LettuceCases.VERSION, a -> lettuceTls(plain(a.tls()))));

    private Spring() {}

    /** A kind of connection factory. */
    record Mode(String name, String version, Function<Addresses, RedisConnectionFactory> factory) {
        RedisConnectionFactory connect(Addresses addresses) {
            return factory.apply(addresses);
        }
    }

    static RedisStandaloneConfiguration plain(Addresses addresses) {
        Endpoint node = addresses.plain().get(0);
        return new RedisStandaloneConfiguration(node.host(), node.port());
    }

    private static RedisSentinelConfiguration sentinel(Addresses addresses) {
        RedisSentinelConfiguration configuration = new RedisSentinelConfiguration().master(Endpoints.MASTER);
        addresses.sentinels().forEach(s -> configuration.addSentinel(new RedisNode(s.host(), s.port())));
        return configuration;
    }

    private static RedisClusterConfiguration cluster(Addresses addresses) {
        return new RedisClusterConfiguration(addresses.cluster().stream().map(Endpoint::toString).toList());
    }

    static LettuceConnectionFactory lettuce(RedisConfiguration configuration) {
        return lettuce(configuration, LettuceClientConfiguration.builder());
    }

    private static LettuceConnectionFactory lettuceTls(RedisConfiguration configuration) {
        return lettuce(configuration, LettuceClientConfiguration.builder().useSsl().and()
                .clientOptions(ClientOptions.builder().sslOptions(LettuceCases.secret()).build()));
    }

    private static LettuceConnectionFactory lettuce(RedisConfiguration configuration, LettuceClientConfigurationBuilder client) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(configuration,
                client.clientResources(LettuceCases.RESOURCES).build());
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    private static JedisConnectionFactory jedis(JedisConnectionFactory factory) {
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    static void close(RedisConnectionFactory factory) {
        try {
            ((DisposableBean) factory).destroy();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
