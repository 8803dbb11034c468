package lockstep.conformance.locks;

import java.time.Duration;
import lockstep.conformance.Names;
import lockstep.conformance.SeedScripts;

/** The lock that everybody writes by hand: SET NX PX with a token, and scripts that compare the token first. */
final class Recipe implements LockClient {
    static final String COMPARE_AND_PEXPIRE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

    private final Commands commands;

    /** The few commands that it needs of a client. */
    interface Commands extends AutoCloseable {
        /** SET key value NX PX milliseconds: true if it was set. */
        boolean setIfAbsent(String key, String value, long milliseconds) throws Exception;

        /** A script with one key and an integer for an answer. */
        long eval(String script, String key, String... args) throws Exception;

        @Override
        void close();
    }

    /** The lock is somebody else's, or nobody's. */
    static final class NotOwnerException extends Exception {
        private static final long serialVersionUID = 1L;

        NotOwnerException(String key) {
            super("not the owner of " + key);
        }
    }

    Recipe(Commands commands) {
        this.commands = commands;
    }

    @Override
    public Held acquire(String name, Duration ttl, Duration wait) throws Exception {
        String token = Names.owner();
        return LockClient.retry(wait, () -> commands.setIfAbsent(name, token, ttl.toMillis()) ? held(name, token) : null);
    }

    private Held held(String key, String token) {
        return new Held() {
            @Override
            public void release() throws Exception {
                changed(commands.eval(SeedScripts.COMPARE_AND_DELETE, key, token));
            }

            @Override
            public void extend(Duration ttl) throws Exception {
                changed(commands.eval(COMPARE_AND_PEXPIRE, key, token, Long.toString(ttl.toMillis())));
            }

            private void changed(long keys) throws NotOwnerException {
                if (keys != 1) {
                    throw new NotOwnerException(key);
                }
            }
        };
    }

    @Override
    public Late late() {
        return Late.refused(NotOwnerException.class);
    }

    @Override
    public void close() {
        commands.close();
    }
}
