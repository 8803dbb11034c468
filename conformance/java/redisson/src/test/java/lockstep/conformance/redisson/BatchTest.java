package lockstep.conformance.redisson;

import java.util.List;
import lockstep.conformance.Names;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.redisson.api.BatchOptions;
import org.redisson.api.BatchOptions.ExecutionMode;
import org.redisson.api.RBatch;
import org.redisson.api.RTransaction;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.client.codec.StringCodec;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Batches in every execution mode (the atomic ones are MULTI and EXEC) and Redisson's transactions. */
@ExtendWith(Redissons.class)
class BatchTest {
    private static final StringCodec TEXT = StringCodec.INSTANCE;

    @ParameterizedTest
    @EnumSource(value = ExecutionMode.class, names = {"IN_MEMORY", "IN_MEMORY_ATOMIC", "REDIS_WRITE_ATOMIC"})
    void batch(ExecutionMode mode) {
        RedissonClient client = Redissons.owner();
        String bucket = Names.key("bucket");
        String counter = Names.key("counter");
        String map = Names.key("map");
        RBatch batch = client.createBatch(BatchOptions.defaults().executionMode(mode));
        batch.getBucket(bucket, TEXT).setAsync("v");
        batch.getAtomicLong(counter).incrementAndGetAsync();
        batch.getMap(map, TEXT).fastPutAsync("field", "value");
        batch.getAtomicLong(counter).addAndGetAsync(4);
        batch.getBucket(bucket, TEXT).getAsync();
        batch.getMap(map, TEXT).putAsync("field", "other"); // a script
        List<?> responses = batch.execute().getResponses();
        assertEquals(6, responses.size(), responses.toString());
        assertEquals(1L, responses.get(1));
        assertEquals(true, responses.get(2));
        assertEquals(5L, responses.get(3));
        assertEquals("v", responses.get(4));
        assertEquals("value", responses.get(5));
        assertEquals("other", client.getMap(map, TEXT).get("field"));
    }

    @Test
    void transaction() {
        RedissonClient client = Redissons.owner();
        String bucket = Names.key("bucket");
        String map = Names.key("map");
        RTransaction committed = client.createTransaction(TransactionOptions.defaults());
        committed.getBucket(bucket, TEXT).set("v");
        committed.getMap(map, TEXT).put("field", "value");
        assertNull(Redissons.other().getBucket(bucket, TEXT).get(), "before the commit");
        committed.commit();
        assertEquals("v", Redissons.other().getBucket(bucket, TEXT).get());
        assertEquals("value", Redissons.other().getMap(map, TEXT).get("field"));

        RTransaction rolledBack = client.createTransaction(TransactionOptions.defaults());
        rolledBack.getBucket(bucket, TEXT).set("w");
        assertTrue(rolledBack.getBucket(bucket, TEXT).isExists());
        rolledBack.rollback();
        assertEquals("v", client.getBucket(bucket, TEXT).get());
    }
}
