package lockstep.conformance.locks;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Control;
import lockstep.conformance.Control.Addresses;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** One failover in the middle of held and contended locks of every library at once. */
@Tag("failover")
class FailoverTest {
    /** So often the contended lock must be granted after the failover. */
    private static final int AFTER = 3;
    private static final Duration PATIENCE = Duration.ofSeconds(25);
    private static final FutureTask<Map<String, Stage>> STAGES = new FutureTask<>(FailoverTest::play);

    static List<Case> cases() {
        return Case.all();
    }

    /** The first test that comes plays it for all. */
    private static Stage stage(Case about) throws Exception {
        Control.assumeFailoverIsPossible();
        about.assumeAvailable();
        STAGES.run();
        Stage stage = STAGES.get(80, TimeUnit.SECONDS).get(about.toString());
        assertNotNull(stage);
        return stage;
    }

    private static Map<String, Stage> play() throws Exception {
        Addresses addresses = Control.addresses();
        Map<String, Stage> stages = new LinkedHashMap<>();
        for (Case about : Case.all()) {
            stages.put(about.toString(), new Stage(about, addresses));
        }
        Thread.sleep(500);
        Control.failover();
        stages.values().forEach(Stage::failedOver);
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < end && stages.values().stream().anyMatch(s -> s.after() < AFTER)) {
            Thread.sleep(50);
        }
        for (Stage stage : stages.values()) {
            stage.stop();
        }
        return stages;
    }

    @AfterAll
    static void close() throws Exception {
        if (STAGES.isDone()) {
            STAGES.get().values().forEach(Stage::close);
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void failoverHeldLockIsStillHeld(Case about) throws Exception {
        Stage stage = stage(about);
        Duration lease = Duration.ofSeconds(5);
        assertNull(stage.thief().acquire(stage.heldName(), lease, Duration.ZERO), "granted twice");
        stage.held().release();
        assertNotNull(stage.thief().acquire(stage.heldName(), lease, Duration.ZERO), "not released");
    }

    @ParameterizedTest
    @MethodSource("cases")
    void failoverContendedLockGoesOn(Case about) throws Exception {
        Stage stage = stage(about);
        assertEquals(List.of(), stage.faults());
        assertEquals(List.of(), stage.tooMany(), "more than what was in flight when the leader died");
        assertTrue(stage.after() >= AFTER, "nobody got the lock after the failover");
    }
}
