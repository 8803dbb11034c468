package lockstep.conformance;

import java.util.UUID;

/** Keys and owners that no other test, run or client uses. */
public final class Names {
    private Names() {}

    public static String key(String purpose) {
        return "conformance:" + purpose + ":" + UUID.randomUUID();
    }

    public static String owner() {
        return UUID.randomUUID().toString();
    }
}
