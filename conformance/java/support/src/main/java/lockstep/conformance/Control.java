package lockstep.conformance;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import lockstep.conformance.Endpoints.Endpoint;

import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** The endpoint of the harness (conformance/clients/control.go): where the nodes are now, and the death of their leader. */
public final class Control {
    private static final String URL = System.getenv().getOrDefault("LOCKSTEP_CONTROL", "");
    private static final Duration FAILOVER = Duration.ofSeconds(60);

    private Control() {}

    /** Addresses at this moment: followers first, the leader last; and the same with TLS. */
    public record Addresses(List<Endpoint> plain, List<Endpoint> sentinels, List<Endpoint> cluster, Addresses tls) {
        public Addresses(List<Endpoint> plain, List<Endpoint> sentinels, List<Endpoint> cluster) {
            this(plain, sentinels, cluster, null);
        }
    }

    public static Addresses addresses() {
        if (URL.isEmpty()) {
            return new Addresses(Endpoints.all(), Endpoints.sentinels(), Endpoints.cluster(), Endpoints.secret());
        }
        String json = send(HttpRequest.newBuilder(URI.create(URL + "/addrs")).GET());
        return faces(json, faces(json.substring(json.indexOf("\"tls\"")), null));
    }

    private static Addresses faces(String json, Addresses tls) {
        return new Addresses(field(json, "plain"), field(json, "sentinel"), field(json, "cluster"), tls);
    }

    private static List<Endpoint> field(String json, String name) {
        Matcher list = Pattern.compile("\"" + name + "\":\\[([^\\]]*)\\]").matcher(json);
        if (!list.find()) {
            throw new IllegalStateException("no " + name + " in " + json);
        }
        return Endpoints.parse(list.group(1).replace("\"", ""));
    }

    /** The harness has started the nodes. */
    static boolean isThere() {
        return !URL.isEmpty();
    }

    public static boolean canFailOver() {
        return isThere() && Endpoints.all().size() >= 3;
    }

    /** Skips the test unless there are three nodes and somebody who can kill one. */
    public static void assumeFailoverIsPossible() {
        assumeFalse(URL.isEmpty(), "nobody to ask for a failover: LOCKSTEP_CONTROL is not set");
        assumeFalse(Endpoints.all().size() < 3, "a failover needs three nodes");
    }

    /** kill -9 of the leader; returns when another one leads and the killed node is back. */
    public static void failover() {
        send(HttpRequest.newBuilder(URI.create(URL + "/failover")).timeout(FAILOVER).POST(HttpRequest.BodyPublishers.noBody()));
    }

    /** Skips the test unless the harness is there to be asked about a lock. */
    public static void assumeSightIsPossible() {
        assumeFalse(URL.isEmpty(), "nobody to ask: LOCKSTEP_CONTROL is not set");
    }

    /**
     * Has the harness ask LOCK.LIST and its kin about a lock that one client holds and another one wants; throws if they are wrong.
     *
     * @param owner as the library knows it; "" if it has none, and null if the library does not tell
     * @param queue how the other client must be shown; "" if that is only to be recorded
     */
    public static void sight(Subject subject, String key, String kind, String owner, String queue) {
        StringBuilder json = new StringBuilder("{\"holds\":1,\"stored\":" + (owner == null));
        String[] fields = {"client", subject.client(), "version", subject.version(), "mode", subject.mode(),
            "key", key, "kind", kind, "owner", owner == null ? "" : owner, "queue", queue};
        for (int i = 0; i < fields.length; i += 2) {
            json.append(",\"").append(fields[i]).append("\":\"").append(fields[i + 1].replace("\\", "\\\\").replace("\"", "\\\"")).append('"');
        }
        send(HttpRequest.newBuilder(URI.create(URL + "/sight")).timeout(FAILOVER)
                .POST(HttpRequest.BodyPublishers.ofString(json.append('}').toString())));
    }

    private static String send(HttpRequest.Builder request) {
        try {
            var answer = HttpClient.newHttpClient().send(request.build(), BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IllegalStateException(answer.statusCode() + ": " + answer.body());
            }
            return answer.body();
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException("LOCKSTEP_CONTROL=" + URL, e);
        }
    }
}
