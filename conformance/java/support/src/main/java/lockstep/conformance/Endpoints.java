package lockstep.conformance;

import java.util.List;
import java.util.stream.Stream;
import lockstep.conformance.Control.Addresses;

/** The servers under test, from LOCKSTEP_ADDRS="host:port[,host:port...]"; a Redis on its usual port without it. */
public final class Endpoints {
    private static final List<Endpoint> ALL = all(parse(System.getenv("LOCKSTEP_ADDRS")));
    private static final List<Endpoint> SENTINELS = parse(System.getenv("LOCKSTEP_SENTINELS"));
    private static final List<Endpoint> CLUSTER = parse(System.getenv("LOCKSTEP_CLUSTER"));

    /** The listeners with TLS, from LOCKSTEP_TLS_ADDRS, LOCKSTEP_TLS_SENTINELS and LOCKSTEP_TLS_CLUSTER. */
    private static final Addresses SECRET = new Addresses(parse(System.getenv("LOCKSTEP_TLS_ADDRS")),
            parse(System.getenv("LOCKSTEP_TLS_SENTINELS")), parse(System.getenv("LOCKSTEP_TLS_CLUSTER")), null);

    /** What the Sentinel listeners call the nodes: the name that every tutorial gives it. */
    public static final String MASTER = "mymaster";

    private Endpoints() {}

    /** One server's address. */
    public record Endpoint(String host, int port) {
        /** The address as Redisson and URI constructors take it. */
        public String uri() {
            return "redis://" + authority();
        }

        /** The same with TLS. */
        public String secretUri() {
            return "rediss://" + authority();
        }

        private String authority() {
            return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
        }

        @Override
        public String toString() {
            return host + ":" + port;
        }
    }

    public static List<Endpoint> all() {
        return ALL;
    }

    private static List<Endpoint> all(List<Endpoint> given) {
        return given.isEmpty() ? List.of(new Endpoint("127.0.0.1", 6379)) : given;
    }

    /** The Sentinel listeners, from LOCKSTEP_SENTINELS; none if it is not set. */
    public static List<Endpoint> sentinels() {
        return SENTINELS;
    }

    /** The Cluster listeners, from LOCKSTEP_CLUSTER; none if it is not set. */
    public static List<Endpoint> cluster() {
        return CLUSTER;
    }

    /** The listeners with TLS; none if they are not set. */
    public static Addresses secret() {
        return SECRET;
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
            return List.of();
        }
        return Stream.of(addresses.split(",")).map(String::trim).map(Endpoints::parseOne).toList();
    }

    private static Endpoint parseOne(String address) {
        int colon = address.lastIndexOf(':');
        if (colon < 1) {
            throw new IllegalArgumentException("want host:port, got \"" + address + "\"");
        }
        String host = address.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        return new Endpoint(host, Integer.parseInt(address.substring(colon + 1)));
    }
}
