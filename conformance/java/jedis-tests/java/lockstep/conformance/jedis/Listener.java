package lockstep.conformance.jedis;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import lockstep.conformance.Endpoints.Endpoint;
import lockstep.conformance.Wait;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;

/** A subscriber with a connection and a thread of its own, as Jedis wants it. */
final class Listener implements AutoCloseable {
    private final BlockingQueue<String> messages = new LinkedBlockingQueue<>();
    private final CountDownLatch subscribed = new CountDownLatch(1);
    private final JedisPubSub handler = new JedisPubSub() {
        @Override
        public void onSubscribe(String channel, int subscribedChannels) {
            subscribed.countDown();
        }

        @Override
        public void onPSubscribe(String pattern, int subscribedChannels) {
            subscribed.countDown();
        }

        @Override
        public void onMessage(String channel, String message) {
            messages.add(message);
        }

        @Override
        public void onPMessage(String pattern, String channel, String message) {
            messages.add(channel + "=" + message);
        }
    };
    private final boolean pattern;
    private final Future<Void> thread;

    private Listener(Endpoint endpoint, String name, boolean pattern) throws Exception {
        this.pattern = pattern;
        thread = Wait.start(() -> {
            try (Jedis jedis = new Jedis(endpoint.host(), endpoint.port())) {
                if (pattern) {
                    jedis.psubscribe(handler, name);
                } else {
                    jedis.subscribe(handler, name);
                }
            }
            return null;
        });
        if (!subscribed.await(Wait.SLACK.toSeconds(), TimeUnit.SECONDS)) {
            throw new IllegalStateException("no answer to the subscription to " + name);
        }
    }

    /** Returns when the subscription is in force. */
    static Listener to(Endpoint endpoint, String channel) throws Exception {
        return new Listener(endpoint, channel, false);
    }

    /** As {@link #to}, for a pattern; messages read "channel=message". */
    static Listener toPattern(Endpoint endpoint, String pattern) throws Exception {
        return new Listener(endpoint, pattern, true);
    }

    BlockingQueue<String> messages() {
        return messages;
    }

    /** Unsubscribes and waits for the server's confirmation, which is what ends the thread. */
    @Override
    public void close() {
        if (handler.isSubscribed()) {
            if (pattern) {
                handler.punsubscribe();
            } else {
                handler.unsubscribe();
            }
        }
        try {
            thread.get(Wait.SLACK.toSeconds(), TimeUnit.SECONDS);
        } catch (Exception e) {
            throw new IllegalStateException("the subscription did not end in order", e);
        }
    }
}
