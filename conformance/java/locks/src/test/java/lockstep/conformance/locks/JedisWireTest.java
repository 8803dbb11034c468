package lockstep.conformance.locks;

import java.util.List;
import java.util.Map;
import lockstep.conformance.Control;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisMovedDataException;
import redis.clients.jedis.params.SetParams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** What Jedis puts on the wire, what it reads, and what it makes of errors. */
class JedisWireTest implements Subject {
    @Override
    public String client() {
        return "Jedis wire";
    }

    @Override
    public String version() {
        return JedisCases.VERSION;
    }

    @Override
    public String mode() {
        return "all";
    }

    /** HELLO 3, then CLIENT SETINFO, whose errors it takes. */
    @Test
    void handshake() throws Exception {
        try (Wire wire = new Wire(Endpoints.first());
                RedisClient client = RedisClient.create(JedisCases.host(wire.endpoint()))) {
            assertEquals("PONG", client.ping());
            assertEquals(List.of("HELLO", "3"), wire.commands("HELLO").get(0));
            assertTrue(wire.commands("CLIENT").stream().anyMatch(c -> c.get(1).equalsIgnoreCase("SETINFO")),
                    () -> wire.commands().toString());
        }
    }

    /** A pool that looks at its connections does so by PING. */
    @Test
    void poolsValidateByPing() throws Exception {
        JedisPoolConfig config = new JedisPoolConfig();
        config.setTestOnBorrow(true);
        try (Wire wire = new Wire(Endpoints.first());
                JedisPool pool = new JedisPool(config, wire.endpoint().host(), wire.endpoint().port());
                Jedis jedis = pool.getResource()) {
            assertEquals(1, wire.commands("PING").size());
            assertFalse(jedis.exists(Names.key("none")));
        }
    }

    @Test
    void trap10SeveralDatabases() {
        String key = Names.key("database");
        for (int database : new int[] {0, 1, 9, 15}) {
            try (RedisClient client = RedisClient.builder().hostAndPort(JedisCases.host(Endpoints.first()))
                    .clientConfig(DefaultJedisClientConfig.builder().database(database).build()).build()) {
                assertEquals("OK", client.set(key, "v", SetParams.setParams().nx().px(30_000)), "databases share keys");
            }
        }
    }

    /** Jedis sends nothing again by itself: the reply is lost, the caller knows, and the key is there. */
    @Test
    void aLostReplyIsAnError() throws Exception {
        try (Wire wire = new Wire(Endpoints.first());
                RedisClient client = RedisClient.create(JedisCases.host(wire.endpoint()))) {
            String key = Names.key("lock");
            assertEquals("PONG", client.ping());
            wire.loseReplyTo(command -> command.contains(key));
            SetParams lease = SetParams.setParams().nx().px(30_000);
            assertThrows(JedisConnectionException.class, () -> client.set(key, "token", lease));
            assertEquals("token", client.get(key));
            assertNull(client.set(key, "token", lease));
        }
    }

    private static Addresses sentinels() {
        assumeFalse(Endpoints.sentinels().isEmpty(), "no Sentinel listener");
        return Control.addresses();
    }

    @Test
    void sentinelAnswers() {
        Addresses addresses = sentinels();
        Endpoint leader = addresses.plain().get(addresses.plain().size() - 1);
        try (RedisSentinelClient client = (RedisSentinelClient) JedisCases.sentinel(addresses)) {
            assertEquals(JedisCases.host(leader), client.getCurrentMaster());
        }
        Endpoint first = addresses.sentinels().get(0);
        try (Jedis sentinel = new Jedis(first.host(), first.port())) {
            List<Map<String, String>> masters = sentinel.sentinelMasters();
            assertEquals(Integer.toString(leader.port()), masters.get(0).get("port"));
            assertEquals(addresses.plain().size() - 1, sentinel.sentinelReplicas(Endpoints.MASTER).size());
            assertNull(sentinel.sentinelGetMasterAddrByName("nobody"));
        }
    }

    private static Addresses cluster() {
        assumeFalse(Endpoints.cluster().isEmpty(), "no Cluster listener");
        return Control.addresses();
    }

    /** CLUSTER SLOTS covers all slots, or Jedis would not start. */
    @Test
    void clusterSlots() {
        Addresses addresses = cluster();
        try (RedisClusterClient client = (RedisClusterClient) JedisCases.cluster(addresses)) {
            assertEquals(addresses.cluster().size(), client.getClusterNodes().size());
            String key = Names.key("lock");
            assertEquals("OK", client.set(key, "v", SetParams.setParams().nx().px(30_000)));
            assertEquals(1, client.del(key));
        }
    }

    /** A plain client is told where to go. */
    @Test
    void movedByAFollowersClusterListener() {
        Addresses addresses = cluster();
        assumeFalse(addresses.cluster().size() < 3, "one node has no follower");
        Endpoint follower = addresses.cluster().get(0);
        try (Jedis jedis = new Jedis(follower.host(), follower.port())) {
            var moved = assertThrows(JedisMovedDataException.class, () -> jedis.set("{foo}:lock", "v"));
            assertTrue(JedisCases.hosts(addresses.cluster()).contains(moved.getTargetNode()));
            assertNotEquals(JedisCases.host(follower), moved.getTargetNode());
            assertEquals(12_182, moved.getSlot());
        }
    }
}
