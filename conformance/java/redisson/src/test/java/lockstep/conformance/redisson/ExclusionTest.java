package lockstep.conformance.redisson;

import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import lockstep.conformance.Endpoints;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.redisson.api.RFuture;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

/**
 * Workers that take one RLock, while clients of other kinds take the same name. conformance/clients/exclusion_test.go starts it;
 * room.go there says what the lines to the judge mean.
 */
@Tag("exclusion")
class ExclusionTest {
    private static final String NAME = System.getenv("LOCKSTEP_LOCK");
    private static final long LEASE = milliseconds("LOCKSTEP_LEASE_MS");
    private static final long RESERVE = milliseconds("LOCKSTEP_RESERVE_MS");
    private static final long WAIT = 1000;

    private static long milliseconds(String variable) {
        return Long.parseLong(System.getenv().getOrDefault(variable, "0"));
    }

    @Test
    @Timeout(value = 1, unit = TimeUnit.DAYS)
    void oneNameEveryClient() throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> workers = new ArrayList<>();
        for (Endpoints.Endpoint endpoint : Endpoints.all()) {
            workers.add(threads.submit(() -> {
                RedissonClient redisson = Redissons.create(endpoint);
                try (Judge judge = new Judge()) {
                    work(redisson, judge);
                } finally {
                    redisson.shutdown();
                }
                return null;
            }));
        }
        for (Future<?> worker : workers) {
            worker.get();
        }
        threads.shutdown();
    }

    private static final class Judge implements AutoCloseable {
        private final Socket socket;
        private final BufferedReader lines;

        Judge() throws IOException {
            String address = System.getenv("LOCKSTEP_JUDGE");
            int colon = address.lastIndexOf(':');
            socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
            lines = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
        }

        String tell(String line) throws IOException {
            socket.getOutputStream().write((line + "\n").getBytes(StandardCharsets.US_ASCII));
            String answer = lines.readLine();
            if (answer == null) {
                throw new EOFException("the judge has gone");
            }
            return answer;
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    private static <T> T await(RFuture<T> future) throws ExecutionException, InterruptedException, TimeoutException {
        return future.toCompletableFuture().get(60, SECONDS);
    }

    /** A string holds the name: the lock of a client of another kind. */
    private static boolean isOfAnotherKind(Throwable fault) {
        return String.valueOf(fault.getMessage()).contains("WRONGTYPE");
    }

    private static void work(RedissonClient redisson, Judge judge) throws Exception {
        RLock lock = redisson.getLock(NAME);
        judge.tell("HELLO Redisson RLock");
        // Redisson's owner is a client and a number, that of a thread as a rule. Here each attempt has another number.
        for (long id = 1; judge.tell("NEXT").equals("GO"); id++) {
            long asked = System.nanoTime();
            boolean granted = false;
            boolean known = true;
            try {
                granted = await(lock.tryLockAsync(WAIT, LEASE, MILLISECONDS, id));
            } catch (ExecutionException | TimeoutException e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                known = isOfAnotherKind(cause);
                judge.tell("NOTE " + (known ? "WRONGTYPE" : String.valueOf(cause.getMessage()).contains("INDETERMINATE")
                        ? "INDETERMINATE" : cause.getClass().getSimpleName()));
            }
            if (granted) {
                visit(redisson, judge, id, asked);
            }
            if (granted || !known) {
                release(lock, id);
            }
            Thread.sleep(ThreadLocalRandom.current().nextInt(60));
        }
    }

    private static long left(long asked) {
        return LEASE - (System.nanoTime() - asked) / 1_000_000;
    }

    private static void visit(RedissonClient redisson, Judge judge, long id, long asked) throws Exception {
        String owner = redisson.getId() + ":" + id;
        if (left(asked) < RESERVE) {
            return;
        }
        judge.tell("ENTER " + owner + " " + left(asked));
        String token;
        try {
            Long n = await(redisson.getScript(StringCodec.INSTANCE).evalAsync(RScript.Mode.READ_WRITE,
                    "return redis.call('LOCK.TOKEN', KEYS[1], 'OWNER', ARGV[1])", RScript.ReturnType.LONG, List.of(NAME), owner));
            token = n == null ? "none" : n.toString();
        } catch (ExecutionException | TimeoutException e) {
            token = "unknown";
        }
        ThreadLocalRandom random = ThreadLocalRandom.current();
        Thread.sleep(random.nextInt(40) == 0 ? random.nextInt(200, 600) : random.nextInt(1, 7));
        judge.tell(left(asked) > 0 ? "LEAVE " + owner + " " + token : "LATE " + owner);
    }

    /** Releases the lock if it is the owner's, again until the outcome is known or the lease must be over. */
    private static void release(RLock lock, long id) throws InterruptedException {
        for (long begin = System.nanoTime(); left(begin) > -LEASE; Thread.sleep(50)) {
            try {
                await(lock.unlockAsync(id));
                return;
            } catch (ExecutionException e) {
                if (e.getCause() instanceof IllegalMonitorStateException || isOfAnotherKind(e.getCause())) {
                    return;
                }
            } catch (TimeoutException e) {
                // Again.
            }
        }
    }
}
