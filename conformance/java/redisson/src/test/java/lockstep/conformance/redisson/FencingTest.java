package lockstep.conformance.redisson;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import lockstep.conformance.Fencing;
import lockstep.conformance.Names;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

import static java.util.concurrent.TimeUnit.SECONDS;

/** docs/fencing.md with Redisson's locks. */
@ExtendWith(Redissons.class)
class FencingTest {
    /** RLock in every mode, the other locks in one. */
    static Stream<Case> cases() {
        return Stream.concat(Mode.PLAIN.stream().map(mode -> new Case(mode, LockKind.LOCK)),
                Stream.of(LockKind.FAIR, LockKind.WRITE).map(kind -> new Case(Mode.SINGLE, kind)));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void fencingSqlDatabase(Case c) throws Exception {
        Fencing.sqlDatabase(owners(c));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void fencingLockFence(Case c) throws Exception {
        Fencing.lockFence(owners(c));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void fencingLockAndDataInOneScript(Case c) throws Exception {
        Fencing.lockAndDataInOneScript(owners(c));
    }

    /** Two processes take turns. */
    private static Fencing.Connect owners(Case c) {
        String name = Names.key("fenced");
        AtomicInteger turn = new AtomicInteger();
        return () -> new Client(c.kind(), turn.getAndIncrement() % 2 == 0 ? c.owner() : c.other(), name);
    }

    private record Client(LockKind kind, RedissonClient redisson, String name) implements Fencing.Client {
        @Override
        public String key() {
            return name;
        }

        @Override
        public Fencing.Held take() {
            RLock lock = kind.of(redisson, name);
            lock.lock(30, SECONDS);
            String owner = redisson.getId() + ":" + Thread.currentThread().getId();
            if (kind == LockKind.WRITE) {
                owner += ":write";
            }
            Long token = redisson.getScript(StringCodec.INSTANCE).eval(RScript.Mode.READ_WRITE,
                    "return redis.call('LOCK.TOKEN', KEYS[1], 'OWNER', ARGV[1])", RScript.ReturnType.LONG, List.of(name), owner);
            return new Fencing.Held(owner, token, lock::unlock);
        }

        @Override
        public Long eval(String script, List<String> keys, String... args) {
            return redisson.getScript(StringCodec.INSTANCE).eval(RScript.Mode.READ_WRITE, script, RScript.ReturnType.LONG,
                    List.copyOf(keys), (Object[]) args);
        }

        @Override
        public void close() {
            // The client is shared by all tests.
        }
    }
}
