package lockstep.conformance.redisson;

import java.util.List;
import java.util.stream.Stream;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Redisson's objects that are an RLock. */
@SuppressWarnings("deprecation") // Redisson discourages getRedLock; programs in use have it.
enum LockKind {
    LOCK("RLock", RedissonClient::getLock),
    FAIR("fair lock", RedissonClient::getFairLock),
    READ("read lock", (client, name) -> client.getReadWriteLock(name).readLock()),
    WRITE("write lock", (client, name) -> client.getReadWriteLock(name).writeLock()),
    MULTI("multi lock", (client, name) -> client.getMultiLock(parts(client, name))),
    RED("RedLock", (client, name) -> client.getRedLock(parts(client, name))),
    SPIN("spin lock", RedissonClient::getSpinLock),
    FENCED("fenced lock", RedissonClient::getFencedLock),
    NON_REENTRANT("non-reentrant lock", RedissonClient::getNonReentrantLock),
    NON_REENTRANT_FAIR("non-reentrant fair lock", RedissonClient::getNonReentrantFairLock),
    FASTER_MULTI("faster multi lock", (client, name) -> client.getMultiLock(name, List.of("a", "b", "c")));

    private interface Maker {
        RLock make(RedissonClient client, String name);
    }

    private final String label;
    private final Maker maker;

    LockKind(String label, Maker maker) {
        this.label = label;
        this.maker = maker;
    }

    /** Three locks, in Cluster mode of three slots. */
    private static RLock[] parts(RedissonClient client, String name) {
        return Stream.of("1", "2", "3").map(part -> client.getLock(name + ":" + part)).toArray(RLock[]::new);
    }

    RLock of(RedissonClient client, String name) {
        return maker.make(client, name);
    }

    /** What the lock keeps out: a reader keeps writers out, all else its like. */
    RLock rivalOf(RedissonClient client, String name) {
        return (this == READ ? WRITE : this).of(client, name);
    }

    boolean isExclusive() {
        return this != READ;
    }

    boolean isReentrant() {
        return this != NON_REENTRANT && this != NON_REENTRANT_FAIR;
    }

    /** One that is made of other locks has no key, and so no time to live, no listener and no forceUnlock. */
    boolean isOneKey() {
        return this != MULTI && this != RED;
    }

    /** Keeps the number of times it is held where getHoldCount finds it. */
    boolean countsHolds() {
        return isOneKey() && this != FASTER_MULTI;
    }

    /** Redisson says that a lock is not the caller's; but RedLock never does, and a fair lock not if nobody holds it. */
    boolean refusesUnlock(boolean held) {
        return this != RED && (held || !isFair());
    }

    boolean isFair() {
        return this == FAIR || this == NON_REENTRANT_FAIR;
    }

    @Override
    public String toString() {
        return label;
    }
}
