package lockstep.conformance.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.models.partitions.Partitions;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.models.role.RedisInstance.Role;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.sentinel.api.sync.RedisSentinelCommands;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import lockstep.conformance.Control;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.SeedScripts;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** What Lettuce puts on the wire, what it reads, and what it makes of errors. */
class LettuceWireTest implements Subject {
    @Override
    public String client() {
        return "Lettuce wire";
    }

    @Override
    public String version() {
        return LettuceCases.VERSION;
    }

    @Override
    public String mode() {
        return "all";
    }

    private interface Body {
        void with(RedisClient client, Wire wire) throws Exception;
    }

    private static void watched(ProtocolVersion protocol, Body body) throws Exception {
        try (Wire wire = new Wire(Endpoints.first())) {
            RedisClient client = RedisClient.create(LettuceCases.RESOURCES, LettuceCases.uri(wire.endpoint()));
            client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
            try {
                body.with(client, wire);
            } finally {
                client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
    }

    /** HELLO 3, then CLIENT SETINFO and CLIENT MAINT_NOTIFICATIONS, whose errors it takes. */
    @Test
    void handshake() throws Exception {
        watched(ProtocolVersion.RESP3, (client, wire) -> {
            String info = client.connect().sync().clientInfo();
            assertTrue(info.contains(" resp=3"), info);
            assertEquals(List.of("HELLO", "3"), wire.commands("HELLO").get(0).subList(0, 2));
            assertFalse(wire.commands("CLIENT").isEmpty());
        });
    }

    @Test
    void handshakeOfResp2() throws Exception {
        watched(ProtocolVersion.RESP2, (client, wire) -> {
            String info = client.connect().sync().clientInfo();
            assertTrue(info.contains(" resp=2"), info);
            assertTrue(wire.commands("HELLO").isEmpty());
        });
    }

    @Test
    void trap10SeveralDatabases() {
        String key = Names.key("database");
        for (int database : new int[] {0, 1, 9, 15}) {
            RedisClient client = RedisClient.create(LettuceCases.RESOURCES);
            RedisURI uri = LettuceCases.uri(Endpoints.first());
            uri.setDatabase(database);
            RedisCommands<String, String> redis = client.connect(uri).sync();
            assertEquals("OK", redis.set(key, "v", SetArgs.Builder.nx().px(30_000)), "databases share keys");
            assertTrue(redis.clientInfo().contains(" db=" + database + " "));
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    /**
     * The reply of a SET NX PX is lost with its connection; Lettuce connects anew and sends the command again. As with
     * Redis the answer is then nil, though the lock is the caller's: its token says so.
     */
    @Test
    void trap11LettuceReplaysWhatWasNotAnswered() throws Exception {
        watched(ProtocolVersion.RESP3, (client, wire) -> {
            RedisCommands<String, String> redis = client.connect().sync();
            assertEquals("PONG", redis.ping());
            String key = Names.key("lock");
            wire.loseReplyTo(command -> command.contains(key));
            assertNull(redis.set(key, "token", SetArgs.Builder.nx().px(30_000)));
            assertEquals(2, wire.commands("SET").size());
            assertEquals("token", redis.get(key));
            assertEquals(1, redis.del(key));
        });
    }

    /** A script that released the lock is sent again, too, and then has nothing to release. */
    @Test
    void trap11LettuceReplaysARelease() throws Exception {
        watched(ProtocolVersion.RESP3, (client, wire) -> {
            RedisCommands<String, String> redis = client.connect().sync();
            String key = Names.key("lock");
            assertEquals("OK", redis.set(key, "token", SetArgs.Builder.nx().px(30_000)));
            wire.loseReplyTo(command -> command.get(0).equals("EVAL"));
            String[] keys = {key};
            Long released = redis.eval(SeedScripts.COMPARE_AND_DELETE, ScriptOutputType.INTEGER, keys, "token");
            assertEquals(0, released);
            assertEquals(2, wire.commands("EVAL").size());
            assertEquals(0, redis.exists(key));
        });
    }

    @Test
    void setOptionsInLettucesOrder() throws Exception {
        watched(ProtocolVersion.RESP3, (client, wire) -> {
            RedisCommands<String, String> redis = client.connect().sync();
            String key = Names.key("lock");
            assertEquals("OK", redis.set(key, "v", SetArgs.Builder.nx().px(30_000)));
            assertNull(redis.set(key, "v", SetArgs.Builder.nx().ex(30)));
            assertEquals("OK", redis.set(key, "w", SetArgs.Builder.xx().px(30_000)));
            assertEquals(List.of("SET", key, "v", "PX", "30000", "NX"), wire.commands("SET").get(0));
            assertEquals(1, redis.unlink(key));
        });
    }

    /** A subscriber may send PING; in RESP2 the answer is an array, of which Lettuce takes the empty payload. */
    @Test
    void pingOfASubscriber() throws Exception {
        for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            watched(protocol, (client, wire) -> {
                String channel = Names.key("channel");
                BlockingQueue<String> messages = new LinkedBlockingQueue<>();
                StatefulRedisPubSubConnection<String, String> subscriber = client.connectPubSub();
                subscriber.addListener(new RedisPubSubAdapter<>() {
                    @Override
                    public void message(String from, String message) {
                        messages.add(from + "=" + message);
                    }
                });
                subscriber.sync().subscribe(channel);
                assertEquals(protocol == ProtocolVersion.RESP2 ? "" : "PONG", subscriber.sync().ping());
                client.connect().sync().publish(channel, "hello");
                assertEquals(channel + "=hello", Wait.next(messages));
            });
        }
    }

    @Test
    void errorsByTheirPrefix() throws Exception {
        watched(ProtocolVersion.RESP3, (client, wire) -> {
            RedisCommands<String, String> redis = client.connect().sync();
            String key = Names.key("list");
            assertThrows(RedisNoScriptException.class,
                    () -> redis.evalsha("0123456789012345678901234567890123456789", ScriptOutputType.INTEGER));
            redis.rpush(key, "v");
            var wrong = assertThrows(RedisCommandExecutionException.class, () -> redis.get(key));
            assertTrue(wrong.getMessage().startsWith("WRONGTYPE "), wrong.getMessage());
            redis.del(key);
        });
    }

    private static Addresses sentinels() {
        assumeFalse(Endpoints.sentinels().isEmpty(), "no Sentinel listener");
        return Control.addresses();
    }

    /** GET-MASTER-ADDR-BY-NAME, MASTERS, MASTER, REPLICAS, SLAVES. */
    @Test
    void sentinelAnswers() {
        Addresses addresses = sentinels();
        Endpoint leader = addresses.plain().get(addresses.plain().size() - 1);
        RedisClient client = RedisClient.create(LettuceCases.RESOURCES, LettuceCases.sentinelUri(addresses));
        RedisSentinelCommands<String, String> sentinel = client.connectSentinel().sync();
        assertEquals(InetSocketAddress.createUnresolved(leader.host(), leader.port()),
                sentinel.getMasterAddrByName(Endpoints.MASTER));
        assertNull(sentinel.getMasterAddrByName("nobody"));
        Map<String, String> master = sentinel.master(Endpoints.MASTER);
        assertEquals(Integer.toString(leader.port()), master.get("port"));
        assertEquals("master", master.get("flags"));
        assertEquals(List.of(master.get("name")), sentinel.masters().stream().map(m -> m.get("name")).toList());
        assertEquals(addresses.plain().size() - 1, sentinel.replicas(Endpoints.MASTER).size());
        assertEquals(addresses.plain().size() - 1, sentinel.slaves(Endpoints.MASTER).size());
        var unknown = assertThrows(RedisCommandExecutionException.class, () -> sentinel.master("nobody"));
        assertEquals("ERR No such master with that name", unknown.getMessage());
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    private static Addresses cluster() {
        assumeFalse(Endpoints.cluster().isEmpty(), "no Cluster listener");
        return Control.addresses();
    }

    /** CLUSTER NODES on every node: one of them is myself, one has all slots. */
    @Test
    void clusterNodes() {
        Addresses addresses = cluster();
        RedisClusterClient client = RedisClusterClient.create(LettuceCases.RESOURCES,
                addresses.cluster().stream().map(LettuceCases::uri).toList());
        Partitions partitions = client.getPartitions();
        assertEquals(addresses.cluster().size(), partitions.size());
        List<RedisClusterNode> masters = partitions.stream().filter(n -> n.getRole() == Role.UPSTREAM).toList();
        assertEquals(1, masters.size());
        assertEquals(16_384, masters.get(0).getSlots().size());
        for (RedisClusterNode node : partitions) {
            assertTrue(node.getRole() == Role.UPSTREAM || node.getSlaveOf().equals(masters.get(0).getNodeId()), node.toString());
        }
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    /** A plain client is told where to go; a Cluster client goes there. */
    @Test
    void movedByAFollowersClusterListener() {
        Addresses addresses = cluster();
        assumeFalse(addresses.cluster().size() < 3, "one node has no follower");
        Endpoint follower = addresses.cluster().get(0);
        RedisClient plain = RedisClient.create(LettuceCases.RESOURCES, LettuceCases.uri(follower));
        var moved = assertThrows(RedisCommandExecutionException.class, () -> plain.connect().sync().set("{foo}:lock", "v"));
        List<String> others = addresses.cluster().stream().skip(1).map(n -> "MOVED 12182 " + n).toList();
        assertTrue(others.contains(moved.getMessage()), moved.getMessage());
        plain.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        LettuceCases.Connection connection = LettuceCases.cluster(new Addresses(List.of(), List.of(), List.of(follower)));
        String key = Names.key("lock");
        assertEquals("OK", connection.sync().set(key, "v", SetArgs.Builder.nx().px(30_000)));
        assertEquals(1, connection.sync().del(key));
        connection.close().run();
    }
}
