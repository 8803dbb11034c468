package lockstep.conformance.jedis;

import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.UnifiedJedis;

/** How a user of this version of Jedis makes a pooled client. */
final class Clients {
    private Clients() {}

    static UnifiedJedis pooled(String host, int port) {
        return new JedisPooled(host, port);
    }
}
