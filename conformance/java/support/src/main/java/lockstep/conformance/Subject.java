package lockstep.conformance;

/**
 * The client that a test is about, for docs/compatibility.md. {@link ResultReporter} finds it as an argument of a parameterized
 * test, as the test instance (of a parameterized class, say), or else takes {@link #ofModule()}.
 */
public interface Subject {
    /** The library, and what of it: "Redisson RLock". */
    String client();

    /** The version that is loaded; several, separated by ", ", for a library on top of another. */
    default String version() {
        return ClientUnderTest.loadedVersion();
    }

    /** How it is set up: single, sentinel, cluster … */
    String mode();

    /** The client for which the module was made, set up in the simplest way: properties conformance.name and conformance.mode. */
    static Subject ofModule() {
        return new Subject() {
            @Override
            public String client() {
                return ClientUnderTest.required("conformance.name");
            }

            @Override
            public String mode() {
                return ClientUnderTest.required("conformance.mode");
            }
        };
    }
}
