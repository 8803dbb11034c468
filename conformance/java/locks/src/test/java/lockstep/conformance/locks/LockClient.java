package lockstep.conformance.locks;

import java.time.Duration;

/** One client of locks, with connections of its own, whatever the library. Many threads may use it at a time. */
interface LockClient extends AutoCloseable {
    /** Takes the lock for that long; null if it was not to be had within the waiting time. */
    Held acquire(String name, Duration ttl, Duration wait) throws Exception;

    /** What happens to a release that comes when the lock is somebody else's already. */
    Late late();

    @Override
    void close();

    /** A lock that was acquired. */
    interface Held {
        void release() throws Exception;

        /** The lock is held for that long from now on. */
        void extend(Duration ttl) throws Exception;
    }

    /** What a library does with a late release. */
    record Late(Class<? extends Exception> thrown, boolean harmless) {
        /** Nothing is thrown, and the heir keeps the lock. */
        static final Late SILENT = new Late(null, true);
        /** The heir's lock is deleted without a look at its value: on Redis, too. */
        static final Late HARMFUL = new Late(null, false);

        static Late refused(Class<? extends Exception> thrown) {
            return new Late(thrown, true);
        }
    }

    /** One attempt to take a lock. */
    @FunctionalInterface
    interface Attempt {
        Held take() throws Exception;
    }

    /** Waiting, for libraries that leave it to their users. */
    static Held retry(Duration wait, Attempt attempt) throws Exception {
        long start = System.nanoTime();
        while (true) {
            Held held = attempt.take();
            if (held != null || System.nanoTime() - start >= wait.toNanos()) {
                return held;
            }
            Thread.sleep(50);
        }
    }
}
