package lockstep.conformance.redisson;

import java.util.List;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Trust;
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
    },
    SINGLE_TLS("single TLS") {
        @Override
        void configure(Config config, Addresses at) {
            secret(config).useSingleServer().setConnectionMinimumIdleSize(FEW).setAddress(at.tls().plain().get(0).secretUri());
        }
    },
    SENTINEL_TLS("sentinel TLS") {
        @Override
        void configure(Config config, Addresses at) {
            secret(config).useSentinelServers().setMasterName(Endpoints.MASTER).setCheckSentinelsList(false)
                    .setMasterConnectionMinimumIdleSize(FEW).setSlaveConnectionMinimumIdleSize(FEW)
                    .addSentinelAddress(secretUris(at.tls().sentinels()));
        }
    },
    CLUSTER_TLS("cluster TLS") {
        @Override
        void configure(Config config, Addresses at) {
            secret(config).useClusterServers().setMasterConnectionMinimumIdleSize(FEW).setSlaveConnectionMinimumIdleSize(FEW)
                    .addNodeAddress(secretUris(at.tls().cluster()));
        }
    };

    /** Redisson opens 24 connections a node at once: their handshakes would take the time of the tests. */
    private static final int FEW = 2;

    /** Those in which every object is tested; those with TLS are for locks that need nothing but a connection. */
    static final List<Mode> PLAIN = List.of(SINGLE, SENTINEL, REPLICATED, CLUSTER, MASTER_SLAVE);
    static final List<Mode> TLS = List.of(SINGLE_TLS, SENTINEL_TLS, CLUSTER_TLS);

    private final String label;

    Mode(String label) {
        this.label = label;
    }

    abstract void configure(Config config, Addresses at);

    private static String[] uris(List<Endpoint> endpoints) {
        return endpoints.stream().map(Endpoint::uri).toArray(String[]::new);
    }

    private static String[] secretUris(List<Endpoint> endpoints) {
        return endpoints.stream().map(Endpoint::secretUri).toArray(String[]::new);
    }

    /** Redisson verifies the chain and the name unless told otherwise. */
    private static Config secret(Config config) {
        return config.setSslTrustManagerFactory(Trust.authority()).setSslKeyManagerFactory(Trust.certificate());
    }

    /** Connected to one node, which lives on in a failover. */
    boolean isSingle() {
        return this == SINGLE || this == SINGLE_TLS;
    }

    Config config(Addresses at) {
        Config config = new Config();
        configure(config, at);
        return config;
    }

    boolean isAvailable() {
        return !(this == SENTINEL && Endpoints.sentinels().isEmpty()) && !(this == CLUSTER && Endpoints.cluster().isEmpty())
                && !(TLS.contains(this) && !Trust.isAvailable());
    }

    /** Skips the test where the servers under test have no such listeners. */
    void assumeAvailable() {
        assumeTrue(isAvailable(), TLS.contains(this) ? "no TLS listener" : this == SENTINEL ? "no Sentinel listener" : "no Cluster listener");
    }

    @Override
    public String toString() {
        return label;
    }
}
