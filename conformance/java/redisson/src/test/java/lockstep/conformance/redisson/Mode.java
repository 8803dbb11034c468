package lockstep.conformance.redisson;

import java.util.List;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import org.redisson.config.Config;
import org.redisson.config.MasterSlaveServersConfig;
import org.redisson.config.SentinelServersConfig;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

/** Redisson's ways to find its servers, with nothing set but the addresses. The first address is a follower's. */
enum Mode {
    SINGLE("single") {
        @Override
        void configure(Config config, Addresses at) {
            config.useSingleServer().setAddress(at.plain().get(0).uri());
        }
    },
    SENTINEL("sentinel") {
        @Override
        void configure(Config config, Addresses at) {
            SentinelServersConfig sentinels = config.useSentinelServers().setMasterName(Endpoints.MASTER)
                    .addSentinelAddress(uris(at.sentinels()));
            if (at.sentinels().size() < 2) {
                sentinels.setCheckSentinelsList(false); // Redisson wants it where there is only one Sentinel
            }
        }
    },
    REPLICATED("replicated") {
        @Override
        void configure(Config config, Addresses at) {
            config.useReplicatedServers().addNodeAddress(uris(at.plain()));
        }
    },
    CLUSTER("cluster") {
        @Override
        void configure(Config config, Addresses at) {
            config.useClusterServers().addNodeAddress(uris(at.cluster()));
        }
    },
    MASTER_SLAVE("master-slave") {
        /** Every node takes writes, so any may be called the master: here a follower. One node is its own slave. */
        @Override
        void configure(Config config, Addresses at) {
            MasterSlaveServersConfig servers = config.useMasterSlaveServers();
            List<Endpoint> slaves = at.plain().size() > 1 ? at.plain().subList(1, at.plain().size()) : at.plain();
            servers.setMasterAddress(at.plain().get(0).uri()).addSlaveAddress(uris(slaves));
        }
    };

    private final String label;

    Mode(String label) {
        this.label = label;
    }

    abstract void configure(Config config, Addresses at);

    private static String[] uris(List<Endpoint> endpoints) {
        return endpoints.stream().map(Endpoint::uri).toArray(String[]::new);
    }

    Config config(Addresses at) {
        Config config = new Config();
        configure(config, at);
        return config;
    }

    boolean isAvailable() {
        return !(this == SENTINEL && Endpoints.sentinels().isEmpty()) && !(this == CLUSTER && Endpoints.cluster().isEmpty());
    }

    /** Skips the test where the servers under test have no such listeners. */
    void assumeAvailable() {
        assumeTrue(isAvailable(), this == SENTINEL ? "no Sentinel listener" : "no Cluster listener");
    }

    @Override
    public String toString() {
        return label;
    }
}
