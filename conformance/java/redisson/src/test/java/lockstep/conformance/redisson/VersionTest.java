package lockstep.conformance.redisson;

import lockstep.conformance.ClientUnderTest;
import org.junit.jupiter.api.Test;

import static org.junit.jupiter.api.Assertions.assertEquals;

class VersionTest {
    @Test
    void theClassPathHoldsTheVersionAskedFor() {
        assertEquals(ClientUnderTest.wantedVersion(), ClientUnderTest.loadedVersion());
    }
}
