package lockstep.conformance.redisson;

import java.util.stream.Stream;
import lockstep.conformance.Subject;
import org.redisson.api.RedissonClient;

/** An object that is no RLock, in a mode. */
record About(String object, Mode setup) implements Subject {
    static Stream<About> inEveryMode(String object) {
        return Mode.PLAIN.stream().map(mode -> new About(object, mode));
    }

    @Override
    public String client() {
        return "Redisson " + object;
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

    @Override
    public String toString() {
        return client() + ", " + mode();
    }
}
