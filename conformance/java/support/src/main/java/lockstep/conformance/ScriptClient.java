package lockstep.conformance;

import java.util.List;
import java.util.concurrent.BlockingQueue;

/** What the scenarios of {@link SeedScenarios} need of a client, however it sends scripts. */
public interface ScriptClient extends AutoCloseable {
    /** Runs a script; the reply is a Long, a String or null. */
    Object eval(String script, List<String> keys, List<String> args);

    /** SET key value NX PX milliseconds: true if it was set. */
    boolean setIfAbsent(String key, String value, long milliseconds);

    /** The messages on a channel from now on: returns when the subscription is in force. */
    BlockingQueue<String> subscribe(String channel) throws Exception;

    @Override
    void close();
}
