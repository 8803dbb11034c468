package lockstep.conformance.locks;

import lockstep.conformance.ClientUnderTest;
import org.junit.jupiter.api.Test;

import static org.junit.jupiter.api.Assertions.assertEquals;

/** What is on the class path is what the build asked for. */
class VersionTest {
    @Test
    void theLibrariesAreTheOnesAskedFor() {
        assertEquals(ClientUnderTest.wantedVersion(), LettuceCases.VERSION);
        assertEquals(System.getProperty("conformance.versions"), String.join(", ", JedisCases.VERSION, RegistryCases.VERSION,
                Spring.DATA_VERSION, ShedLockCases.SPRING, ShedLockCases.CORE, ShedLockCases.JEDIS));
    }
}
