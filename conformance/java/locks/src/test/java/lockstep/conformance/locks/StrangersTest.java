package lockstep.conformance.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocketFactory;
import lockstep.conformance.Control;
import lockstep.conformance.Subject;
import lockstep.conformance.Trust;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

/** TLS is what it says: who is not to be trusted is refused, on either side. */
class StrangersTest {
    /** Connects and asks for PONG. */
    enum Client implements Subject {
        JEDIS("Jedis", JedisCases.VERSION) {
            @Override
            void ping(SSLSocketFactory sockets, SslOptions unused) {
                try (Jedis jedis = new Jedis(JedisCases.host(Control.addresses().tls().plain().get(0)), JedisCases.secret(sockets))) {
                    assertEquals("PONG", jedis.ping());
                }
            }
        },
        LETTUCE("Lettuce", LettuceCases.VERSION) {
            @Override
            void ping(SSLSocketFactory unused, SslOptions options) {
                RedisURI uri = RedisURI.create(Control.addresses().tls().plain().get(0).secretUri());
                try (RedisClient client = RedisClient.create(LettuceCases.RESOURCES, uri)) {
                    client.setOptions(ClientOptions.builder().sslOptions(options).autoReconnect(false).build());
                    assertEquals("PONG", client.connect().sync().ping());
                }
            }
        };

        private final String library;
        private final String version;

        Client(String library, String version) {
            this.library = library;
            this.version = version;
        }

        abstract void ping(SSLSocketFactory sockets, SslOptions options);

        @Override
        public String client() {
            return library;
        }

        @Override
        public String version() {
            return version;
        }

        @Override
        public String mode() {
            return "plain TLS";
        }
    }

    @BeforeEach
    void available() {
        Trust.assumeAvailable();
    }

    @ParameterizedTest
    @EnumSource
    void whoIsTrustedIsAnswered(Client client) {
        client.ping(Trust.sockets(), LettuceCases.secret());
    }

    @ParameterizedTest
    @EnumSource
    void nodesOfAnotherAuthorityAreRefused(Client client) {
        Exception e = assertThrows(Exception.class, () -> client.ping(Trust.sockets(Trust.otherAuthority(), Trust.certificate()),
                SslOptions.builder().jdkSslProvider().trustManager(Trust.otherAuthority()).keyManager(Trust.certificate()).build()));
        assertInstanceOf(SSLException.class, root(e, SSLException.class));
    }

    @ParameterizedTest
    @EnumSource
    void aClientWithoutACertificateIsRefused(Client client) {
        Exception e = assertThrows(Exception.class, () -> client.ping(Trust.sockets(Trust.authority(), null),
                SslOptions.builder().jdkSslProvider().trustManager(Trust.authority()).build()));
        Class<?> refused = client == Client.JEDIS ? JedisConnectionException.class : RedisConnectionException.class;
        assertInstanceOf(refused, root(e, refused));
    }

    /** The first cause of that kind, or what was thrown. */
    private static Throwable root(Throwable e, Class<?> kind) {
        for (Throwable t = e; t != null; t = t.getCause()) {
            if (kind.isInstance(t)) {
                return t;
            }
        }
        return e;
    }
}
