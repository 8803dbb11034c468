package lockstep.conformance;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The client library on the class path: what the build asked for, and what the jar says it is. */
public final class ClientUnderTest {
    private ClientUnderTest() {}

    /** The client's Maven name, group:artifact. */
    public static String coordinates() {
        return required("conformance.client");
    }

    /** The version that the build asked for. */
    public static String wantedVersion() {
        return required("conformance.version");
    }

    /** The version that the jar on the class path was built as. */
    public static String loadedVersion() {
        return loadedVersion(coordinates());
    }

    /** The version that a jar on the class path was built as; the jar is named by group:artifact. */
    public static String loadedVersion(String coordinates) {
        String resource = "/META-INF/maven/" + coordinates.replace(':', '/') + "/pom.properties";
        try (InputStream in = ClientUnderTest.class.getResourceAsStream(resource)) {
            if (in == null) {
                throw new IllegalStateException(resource + " is not on the class path");
            }
            Properties pom = new Properties();
            pom.load(in);
            return pom.getProperty("version");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static String environment(String variable) {
        String value = System.getenv(variable);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException(variable + " is not set");
        }
        return value;
    }

    static String required(String property) {
        String value = System.getProperty(property);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException("system property " + property + " is not set; run the tests through Maven");
        }
        return value;
    }
}
