package lockstep.conformance.redisson;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import lockstep.conformance.Endpoints.Endpoint;

/** Stands between a client and a server and remembers every command. */
final class Recorder implements AutoCloseable {
    private final ServerSocket listener;
    private final Endpoint server;
    private final Queue<List<String>> commands = new ConcurrentLinkedQueue<>();
    private final Queue<Socket> sockets = new ConcurrentLinkedQueue<>();

    Recorder(Endpoint server) throws IOException {
        this.server = server;
        this.listener = new ServerSocket(0, 200, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    /** Where clients connect to. */
    Endpoint endpoint() {
        return new Endpoint("127.0.0.1", listener.getLocalPort());
    }

    /** The commands so far that have a word with this in it. */
    List<List<String>> about(String word) {
        return commands.stream().filter(c -> c.stream().anyMatch(w -> w.contains(word))).toList();
    }

    /** The names of all commands so far. */
    Set<String> names() {
        return commands.stream().map(c -> c.get(0)).collect(Collectors.toSet());
    }

    /** How many different scripts were run with such a key. */
    int scripts(String key) {
        return (int) about(key).stream().filter(c -> c.get(0).startsWith("EVAL")).map(c -> c.get(1)).distinct().count();
    }

    /** The names of the commands with such a word, but for scripts. */
    Set<String> plain(String word) {
        return about(word).stream().map(c -> c.get(0)).filter(n -> !n.startsWith("EVAL")).collect(Collectors.toSet());
    }

    private interface Task {
        void run() throws IOException;
    }

    /** Runs until a connection ends, which is how all of this ends. */
    private static void start(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (IOException ended) {
                return;
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            Socket upstream = new Socket(server.host(), server.port());
            client.setTcpNoDelay(true);
            upstream.setTcpNoDelay(true);
            sockets.add(client);
            sockets.add(upstream);
            start(() -> requests(client, upstream));
            start(() -> {
                try (client) {
                    upstream.getInputStream().transferTo(client.getOutputStream());
                }
            });
        }
    }

    private void requests(Socket client, Socket upstream) throws IOException {
        try (upstream) {
            InputStream in = new BufferedInputStream(client.getInputStream());
            OutputStream out = upstream.getOutputStream();
            while (true) {
                ByteArrayOutputStream raw = new ByteArrayOutputStream();
                List<String> command = new ArrayList<>();
                for (int left = Integer.parseInt(line(in, raw).substring(1)); left > 0; left--) {
                    byte[] word = in.readNBytes(Integer.parseInt(line(in, raw).substring(1)) + 2);
                    raw.write(word);
                    command.add(new String(word, 0, Math.max(0, word.length - 2), StandardCharsets.ISO_8859_1));
                }
                commands.add(command);
                raw.writeTo(out);
            }
        }
    }

    private static String line(InputStream in, ByteArrayOutputStream raw) throws IOException {
        StringBuilder text = new StringBuilder();
        while (true) {
            int c = in.read();
            if (c < 0) {
                throw new EOFException();
            }
            raw.write(c);
            if (c == '\n') {
                return text.toString();
            }
            if (c != '\r') {
                text.append((char) c);
            }
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }
}
