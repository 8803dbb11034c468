package lockstep.conformance.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Names;
import lockstep.conformance.Subject;
import lockstep.conformance.Wait;
import org.junit.jupiter.api.Test;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** What Spring Data Redis and RedisLockRegistry put on the wire. */
class SpringWireTest implements Subject {
    @Override
    public String client() {
        return "Spring Integration RedisLockRegistry";
    }

    @Override
    public String version() {
        return RegistryCases.VERSION + ", " + LettuceCases.VERSION;
    }

    @Override
    public String mode() {
        return "plain (Lettuce)";
    }

    /** A registry on a wire that is watched. */
    private record Watched(Wire wire, LettuceConnectionFactory factory, RedisLockRegistry registry) implements AutoCloseable {
        static Watched connect(RedisLockType type) throws Exception {
            Wire wire = new Wire(Endpoints.first());
            LettuceConnectionFactory factory = Spring.lettuce(Spring.plain(wire.addresses()));
            RedisLockRegistry registry = new RedisLockRegistry(factory, RegistryCases.REGISTRY);
            registry.setRedisLockType(type);
            return new Watched(wire, factory, registry);
        }

        String key(String name) {
            return RegistryCases.REGISTRY + ":" + name;
        }

        int scripts() {
            return wire.commands("EVAL").size() + wire.commands("EVALSHA").size();
        }

        @Override
        public void close() throws Exception {
            registry.destroy();
            Spring.close(factory);
            wire.close();
        }
    }

    /**
     * Whatever the server's version, it first unlocks with DELEX; it turns to a script only when the error reads as
     * Redis 7.0 words it. lockstep has DELEX.
     */
    @Test
    void trap02SpringIntegrationUnlocksWithDelex() throws Exception {
        try (Watched w = Watched.connect(RedisLockType.SPIN_LOCK)) {
            String name = Names.key("lock");
            DistributedLock lock = w.registry().obtain(name);
            assertTrue(lock.tryLock());
            int scripts = w.scripts();
            lock.unlock();
            assertEquals(1, w.wire().commands("DELEX").size(), () -> "DELEX in " + w.wire().commands());
            boolean unknown = w.wire().answered().contains("-ERR unknown command 'DELEX'");
            assertEquals(unknown, w.scripts() > scripts, () -> "scripts in " + w.wire().commands());
            assertFalse(new StringRedisTemplate(w.factory()).hasKey(w.key(name)), "not unlocked");
        }
    }

    /** And renews with SET IFEQ. */
    @Test
    void trap02SpringIntegrationRenewsWithIfeq() throws Exception {
        try (Watched w = Watched.connect(RedisLockType.SPIN_LOCK)) {
            String name = Names.key("lock");
            DistributedLock lock = w.registry().obtain(name);
            assertTrue(lock.tryLock(Duration.ZERO, Duration.ofSeconds(30)));
            int scripts = w.scripts();
            w.registry().renewLock(name, Duration.ofSeconds(90));
            assertTrue(w.wire().commands("SET").stream().anyMatch(c -> c.contains("IFEQ")),
                    () -> "IFEQ in " + w.wire().commands());
            boolean refused = w.wire().answered().contains("-ERR syntax error\r\n");
            assertEquals(refused, w.scripts() > scripts, () -> "scripts in " + w.wire().commands());
            long left = new StringRedisTemplate(w.factory()).getExpire(w.key(name), TimeUnit.MILLISECONDS);
            Wait.assertBetween(30_001, 90_000, left, "the lease after its renewal");
            lock.unlock();
        }
    }

    @Test
    void evalshaThenEvalOnNoscript() throws Exception {
        try (Watched w = Watched.connect(RedisLockType.SPIN_LOCK)) {
            String text = "return ARGV[1] .. '" + Names.key("script") + "'";
            DefaultRedisScript<String> script = new DefaultRedisScript<>(text, String.class);
            StringRedisTemplate template = new StringRedisTemplate(w.factory());
            String first = template.execute(script, List.of("k"), "a");
            assertEquals(first, template.execute(script, List.of("k"), "a"));
            assertEquals(2, w.wire().commands("EVALSHA").size());
            assertEquals(1, w.wire().commands("EVAL").size());
            assertTrue(w.wire().answered().contains("-NOSCRIPT "), w.wire().answered());
        }
    }

    /** SET k v PX ms NX: the options in this order. */
    @Test
    void setIfAbsentWithALease() throws Exception {
        try (Watched w = Watched.connect(RedisLockType.SPIN_LOCK)) {
            String key = Names.key("lock");
            StringRedisTemplate template = new StringRedisTemplate(w.factory());
            assertEquals(true, template.opsForValue().setIfAbsent(key, "a", Duration.ofMillis(30_001)));
            assertEquals(false, template.opsForValue().setIfAbsent(key, "b", Duration.ofMillis(30_001)));
            assertEquals(List.of("SET", key, "a", "PX", "30001", "NX"), w.wire().commands("SET").get(0));
            assertEquals("a", template.opsForValue().get(key));
            template.delete(key);
            assertNull(template.opsForValue().get(key));
        }
    }

    /** PSUBSCRIBE registry-channel:*, and PUBLISH from the unlock script, which another registry runs. */
    @Test
    void pubSubLockListensToItsRegistrysChannels() throws Exception {
        try (Watched owner = Watched.connect(RedisLockType.PUB_SUB_LOCK);
                Watched waiter = Watched.connect(RedisLockType.PUB_SUB_LOCK)) {
            String name = Names.key("lock");
            DistributedLock held = owner.registry().obtain(name);
            assertTrue(held.tryLock());
            Future<Boolean> waiting = Wait.start(() -> waiter.registry().obtain(name).tryLock(60, TimeUnit.SECONDS));
            Wait.until("the waiter has subscribed", () -> waiter.wire().answered().contains("psubscribe"));
            assertFalse(waiting.isDone());
            held.unlock();
            assertTrue(waiting.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS));
            assertEquals(List.of(List.of("PSUBSCRIBE", RegistryCases.REGISTRY + "-channel:*")),
                    waiter.wire().commands("PSUBSCRIBE"));
        }
    }
}
