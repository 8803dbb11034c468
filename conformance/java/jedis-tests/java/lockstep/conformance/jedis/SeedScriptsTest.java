package lockstep.conformance.jedis;

import java.util.function.Function;
import java.util.stream.Stream;
import lockstep.conformance.Endpoints;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Names;
import lockstep.conformance.SeedScenarios;
import lockstep.conformance.SeedScripts;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The seeds' scripts as they stand, by every way in which Jedis sends a script. */
class SeedScriptsTest {
    /** The ways. */
    enum Way {
        JEDIS_EVAL(JedisScriptClient::eval),
        JEDIS_EVALSHA(JedisScriptClient::evalsha),
        POOLED_EVAL(JedisScriptClient::pooledEval),
        POOLED_EVALSHA(JedisScriptClient::pooledEvalsha);

        private final Function<Endpoint, JedisScriptClient> open;

        Way(Function<Endpoint, JedisScriptClient> open) {
            this.open = open;
        }
    }

    @ParameterizedTest
    @EnumSource
    void compareAndDelete(Way way) {
        try (JedisScriptClient client = way.open.apply(Endpoints.first())) {
            SeedScenarios scenarios = new SeedScenarios(client);
            Stream.of(SeedScripts.COMPARE_AND_DELETE_EXPLAINED, SeedScripts.COMPARE_AND_DELETE,
                    SeedScripts.COMPARE_AND_DELETE_QUOTED).forEach(scenarios::compareAndDelete);
        }
    }

    @ParameterizedTest
    @EnumSource
    void reentrantLock(Way way) {
        try (JedisScriptClient client = way.open.apply(Endpoints.first())) {
            new SeedScenarios(client).reentrantLock(SeedScripts.REENTRANT_LOCK, Names.key("seed-reentrant"));
        }
    }

    @ParameterizedTest
    @EnumSource
    void rlock(Way way) throws Exception {
        try (JedisScriptClient client = way.open.apply(Endpoints.first())) {
            new SeedScenarios(client).rlock();
        }
    }
}
