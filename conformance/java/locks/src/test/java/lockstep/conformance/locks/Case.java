package lockstep.conformance.locks;

import java.util.List;
import java.util.stream.Stream;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Subject;
import lockstep.conformance.Trust;

import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** A library in a mode; the mode starts with plain, sentinel or cluster. */
record Case(String client, String version, String mode, Connect connect) implements Subject {
    /** Makes a client of the nodes at these addresses. */
    @FunctionalInterface
    interface Connect {
        LockClient to(Addresses addresses) throws Exception;
    }

    /** Every library in every mode. */
    static List<Case> all() {
        return Stream.of(JedisCases.all(), LettuceCases.all(), RegistryCases.all(), ShedLockCases.all())
                .flatMap(List::stream).toList();
    }

    /** A plain client is connected to a node that lives on, the others to the leader itself. */
    boolean plain() {
        return mode.startsWith("plain");
    }

    /** Skips the test where the servers have no listener for the mode. */
    void assumeAvailable() {
        if (mode.contains("TLS")) {
            Trust.assumeAvailable();
        }
        assumeFalse(mode.startsWith("sentinel") && Endpoints.sentinels().isEmpty(), "no Sentinel listener");
        assumeFalse(mode.startsWith("cluster") && Endpoints.cluster().isEmpty(), "no Cluster listener");
    }

    @Override
    public String toString() {
        return client + ", " + mode;
    }
}
