package lockstep.conformance.redisson;

import java.util.stream.Stream;
import lockstep.conformance.Subject;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** A kind of lock in a mode. */
record Case(Mode setup, LockKind kind) implements Subject {
    static Stream<Case> all() {
        return Stream.concat(Stream.of(LockKind.values()).flatMap(kind -> Mode.PLAIN.stream().map(mode -> new Case(mode, kind))),
                Mode.TLS.stream().map(mode -> new Case(mode, LockKind.LOCK)));
    }

    static Stream<Case> exclusive() {
        return all().filter(c -> c.kind.isExclusive());
    }

    static Stream<Case> oneKey() {
        return all().filter(c -> c.kind.isOneKey());
    }

    static Stream<Case> fair() {
        return all().filter(c -> c.kind.isFair());
    }

    @Override
    public String client() {
        return "Redisson " + kind;
    }

    @Override
    public String mode() {
        return setup.toString();
    }

    RedissonClient owner() {
        return Redissons.owner(setup);
    }

    RedissonClient other() {
        return Redissons.other(setup);
    }

    /** The lock of the owner. */
    RLock lock(String name) {
        return kind.of(owner(), name);
    }

    /** A lock of the other process that the owner's keeps out. */
    RLock rival(String name) {
        return kind.rivalOf(other(), name);
    }

    @Override
    public String toString() {
        return client() + ", " + mode();
    }
}
