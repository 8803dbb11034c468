package lockstep.conformance.jedis;

import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.ScriptClient;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.JedisCommands;
import redis.clients.jedis.commands.ScriptingKeyCommands;
import redis.clients.jedis.params.SetParams;

/** Jedis behind {@link ScriptClient}: one connection or a pooled client, EVAL or SCRIPT LOAD with EVALSHA. */
final class JedisScriptClient implements ScriptClient {
    private final Endpoint endpoint;
    private final JedisCommands commands;
    private final ScriptingKeyCommands scripting;
    private final Function<String, String> load;
    private final Runnable close;
    private final Map<String, String> loaded = new ConcurrentHashMap<>();
    private Listener listener;

    /** With a null load, scripts go out in full. */
    private <C extends JedisCommands & ScriptingKeyCommands> JedisScriptClient(
            Endpoint endpoint, C client, Function<String, String> load, Runnable close) {
        this.endpoint = endpoint;
        this.commands = client;
        this.scripting = client;
        this.load = load;
        this.close = close;
    }

    static JedisScriptClient eval(Endpoint endpoint) {
        Jedis jedis = new Jedis(endpoint.host(), endpoint.port());
        return new JedisScriptClient(endpoint, jedis, null, jedis::close);
    }

    static JedisScriptClient evalsha(Endpoint endpoint) {
        Jedis jedis = new Jedis(endpoint.host(), endpoint.port());
        return new JedisScriptClient(endpoint, jedis, jedis::scriptLoad, jedis::close);
    }

    static JedisScriptClient pooledEval(Endpoint endpoint) {
        UnifiedJedis jedis = Clients.pooled(endpoint.host(), endpoint.port());
        return new JedisScriptClient(endpoint, jedis, null, jedis::close);
    }

    static JedisScriptClient pooledEvalsha(Endpoint endpoint) {
        UnifiedJedis jedis = Clients.pooled(endpoint.host(), endpoint.port());
        return new JedisScriptClient(endpoint, jedis, script -> jedis.scriptLoad(script, "any"), jedis::close);
    }

    @Override
    public Object eval(String script, List<String> keys, List<String> args) {
        if (load == null) {
            return scripting.eval(script, keys, args);
        }
        return scripting.evalsha(loaded.computeIfAbsent(script, load), keys, args);
    }

    @Override
    public boolean setIfAbsent(String key, String value, long milliseconds) {
        return "OK".equals(commands.set(key, value, SetParams.setParams().nx().px(milliseconds)));
    }

    @Override
    public BlockingQueue<String> subscribe(String channel) throws Exception {
        listener = Listener.to(endpoint, channel);
        return listener.messages();
    }

    @Override
    public void close() {
        if (listener != null) {
            listener.close();
        }
        close.run();
    }
}
