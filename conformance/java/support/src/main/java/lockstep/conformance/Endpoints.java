package lockstep.conformance;

import java.util.List;
import java.util.stream.Stream;

/** The servers under test, from LOCKSTEP_ADDRS="host:port[,host:port...]"; a Redis on its usual port without it. */
public final class Endpoints {
    private static final List<Endpoint> ALL = parse(System.getenv("LOCKSTEP_ADDRS"));

    private Endpoints() {}

    /** One server's address. */
    public record Endpoint(String host, int port) {
        /** The address as Redisson and URI constructors take it. */
        public String uri() {
            return "redis://" + (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
        }

        @Override
        public String toString() {
            return host + ":" + port;
        }
    }

    public static List<Endpoint> all() {
        return ALL;
    }

    /** Where every test talks to, unless it is about several nodes. */
    public static Endpoint first() {
        return ALL.get(0);
    }

    /** The i-th node; with fewer nodes it wraps around, so a test for several nodes also runs on one. */
    public static Endpoint node(int i) {
        return ALL.get(i % ALL.size());
    }

    static List<Endpoint> parse(String addresses) {
        if (addresses == null || addresses.isBlank()) {
            return List.of(new Endpoint("127.0.0.1", 6379));
        }
        return Stream.of(addresses.split(",")).map(String::trim).map(Endpoints::parseOne).toList();
    }

    private static Endpoint parseOne(String address) {
        int colon = address.lastIndexOf(':');
        if (colon < 1) {
            throw new IllegalArgumentException("LOCKSTEP_ADDRS: want host:port, got \"" + address + "\"");
        }
        String host = address.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        return new Endpoint(host, Integer.parseInt(address.substring(colon + 1)));
    }
}
