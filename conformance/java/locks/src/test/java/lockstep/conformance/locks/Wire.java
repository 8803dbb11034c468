package lockstep.conformance.locks;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
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
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;
import lockstep.conformance.Control.Addresses;
import lockstep.conformance.Endpoints.Endpoint;

/** Between a client and a node: keeps what the client sends and what is answered, and can lose a reply. */
final class Wire implements AutoCloseable {
    private final Endpoint node;
    private final ServerSocket listener;
    private final Queue<Socket> sockets = new ConcurrentLinkedQueue<>();
    private final Queue<List<String>> sent = new ConcurrentLinkedQueue<>();
    private final StringBuffer answered = new StringBuffer();
    private final AtomicReference<Predicate<List<String>>> loss = new AtomicReference<>();

    Wire(Endpoint node) throws IOException {
        this.node = node;
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    /** The place of a plain node. */
    Addresses addresses() {
        return new Addresses(List.of(endpoint()), List.of(), List.of());
    }

    Endpoint endpoint() {
        return new Endpoint(listener.getInetAddress().getHostAddress(), listener.getLocalPort());
    }

    /** The commands so far, word by word. */
    List<List<String>> commands() {
        return List.copyOf(sent);
    }

    /** The commands of that name. */
    List<List<String>> commands(String name) {
        return commands().stream().filter(c -> c.get(0).equalsIgnoreCase(name)).toList();
    }

    /** All that was answered, as it came. */
    String answered() {
        return answered.toString();
    }

    /** The next such command is carried out, but instead of its reply the client sees its connection break. */
    void loseReplyTo(Predicate<List<String>> command) {
        loss.set(command);
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }

    private static void start(Pump pump) {
        Thread thread = new Thread(() -> {
            try {
                pump.run();
            } catch (IOException e) {
                // One side has closed: that ends the connection, as it should.
                return;
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private interface Pump {
        void run() throws IOException;
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            Socket server = new Socket(node.host(), node.port());
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            sockets.add(client);
            sockets.add(server);
            Connection connection = new Connection(client, server);
            start(connection::requests);
            start(connection::replies);
        }
    }

    private final class Connection {
        private final Socket client;
        private final Socket server;
        private volatile boolean losing;

        Connection(Socket client, Socket server) {
            this.client = client;
            this.server = server;
        }

        void requests() throws IOException {
            try (client; server) {
                InputStream in = new BufferedInputStream(client.getInputStream());
                OutputStream out = server.getOutputStream();
                while (true) {
                    List<byte[]> raw = request(in);
                    List<String> command = raw.stream().map(b -> new String(b, StandardCharsets.UTF_8)).toList();
                    sent.add(command);
                    Predicate<List<String>> wanted = loss.get();
                    if (wanted != null && wanted.test(command) && loss.compareAndSet(wanted, null)) {
                        losing = true;
                    }
                    out.write(encoded(raw));
                    out.flush();
                }
            }
        }

        void replies() throws IOException {
            try (client; server) {
                InputStream in = server.getInputStream();
                OutputStream out = client.getOutputStream();
                byte[] chunk = new byte[16_384];
                for (int n = in.read(chunk); n >= 0 && !losing; n = in.read(chunk)) {
                    answered.append(new String(chunk, 0, n, StandardCharsets.UTF_8));
                    out.write(chunk, 0, n);
                    out.flush();
                }
            }
        }
    }

    private static List<byte[]> request(InputStream in) throws IOException {
        int count = length(in, '*');
        List<byte[]> words = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] word = in.readNBytes(length(in, '$'));
            in.skipNBytes(2);
            words.add(word);
        }
        return words;
    }

    private static int length(InputStream in, char kind) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            if (c < 0) {
                throw new IOException("end of the connection");
            }
            line.append((char) c);
        }
        if (line.charAt(0) != kind) {
            throw new IOException("want " + kind + ", got " + line);
        }
        return Integer.parseInt(line.substring(1).trim());
    }

    private static byte[] encoded(List<byte[]> words) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(("*" + words.size() + "\r\n").getBytes(StandardCharsets.US_ASCII));
        for (byte[] word : words) {
            out.write(("$" + word.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
            out.write(word);
            out.write("\r\n".getBytes(StandardCharsets.US_ASCII));
        }
        return out.toByteArray();
    }
}
