package lockstep.conformance.jedis;

import java.util.List;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

/** MULTI and WATCH, as programs without scripts release and extend their locks. */
class JedisTransactionTest {
    private static final Endpoint FIRST = Endpoints.first();

    private static Jedis connect() {
        return new Jedis(FIRST.host(), FIRST.port());
    }

    @Test
    void commandsRunTogether() {
        try (Jedis jedis = connect()) {
            String key = Names.key("counter");
            Transaction transaction = jedis.multi();
            Response<Long> first = transaction.incr(key);
            Response<Long> second = transaction.incrBy(key, 4);
            transaction.hset(key, "field", "value");
            Response<String> value = transaction.get(key);
            List<Object> replies = transaction.exec();
            assertEquals(4, replies.size());
            assertEquals(1, first.get());
            assertEquals(5, second.get());
            assertEquals("5", value.get(), "an error does not undo the others");
            assertInstanceOf(JedisDataException.class, replies.get(2));
        }
    }

    @Test
    void discardedAndRefused() {
        try (Jedis jedis = connect()) {
            String key = Names.key("key");
            Transaction discarded = jedis.multi();
            discarded.set(key, "v");
            discarded.discard();
            assertNull(jedis.get(key));
            jedis.watch(key);
            jedis.unwatch();
            Transaction refused = jedis.multi();
            refused.set(key, "v");
            refused.eval("return 1", 2, key); // fewer keys than announced: EXEC tells
            assertInstanceOf(JedisDataException.class, refused.exec().get(1));
            assertEquals("v", jedis.get(key));
        }
    }

    /** WATCH, GET, MULTI, DEL, EXEC: the release of a lock by its owner and by nobody else. */
    @Test
    void releaseByWatch() {
        try (Jedis owner = connect(); Jedis thief = connect()) {
            String lock = Names.key("lock");
            owner.set(lock, "owner");
            owner.watch(lock);
            assertEquals("owner", owner.get(lock));
            Transaction release = owner.multi();
            release.del(lock);
            assertEquals(List.of(1L), release.exec());

            owner.set(lock, "owner");
            owner.watch(lock);
            assertEquals("owner", owner.get(lock));
            thief.set(lock, "thief"); // the lease has ended meanwhile
            Transaction late = owner.multi();
            Response<Long> deleted = late.del(lock);
            assertNull(late.exec(), "EXEC after a watched key has changed");
            assertThrows(RuntimeException.class, deleted::get);
            assertEquals("thief", owner.get(lock));
        }
    }
}
