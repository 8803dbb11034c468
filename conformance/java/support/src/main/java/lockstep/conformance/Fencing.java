package lockstep.conformance;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** docs/fencing.md: what a lock protects, and owners whose late writes are refused. */
public final class Fencing {
    private static final String POSTGRES = System.getenv().getOrDefault("LOCKSTEP_POSTGRES", "");
    private static final Pattern PARAMETER = Pattern.compile("\\$(\\d)");

    private Fencing() {}

    /** One client of a lock. */
    public interface Client extends AutoCloseable {
        /** The key of the lock. */
        String key();

        /** Takes the lock, waits for it if need be, and asks for its token as a program that uses the library does. */
        Held take() throws Exception;

        /** Runs a script by the library's own call; the reply is an integer or nil. */
        Long eval(String script, List<String> keys, String... args);

        @Override
        void close();
    }

    /** A lock that was taken: what the library has written as the owner, and the token. */
    public record Held(String owner, long token, Runnable release) {}

    /** A client that has taken the lock. */
    private record Owner(Client client, Held held) {
        String token() {
            return Long.toString(held.token());
        }

        private long check() {
            return client.eval("return redis.call('LOCK.CHECK', KEYS[1], ARGV[1])", List.of(client.key()), token());
        }
    }

    /** Connects another process. */
    @FunctionalInterface
    public interface Connect {
        Client client() throws Exception;
    }

    /** What a lock protects. */
    private interface Resource extends AutoCloseable {
        /** What an owner does before its first write: false if a later owner has been there. */
        boolean begin(Owner owner) throws Exception;

        boolean write(Owner owner, long value) throws Exception;

        long value() throws Exception;

        @Override
        default void close() throws SQLException {}
    }

    public static void sqlDatabase(Connect connect) throws Exception {
        assumeTokens();
        assumeFalse(POSTGRES.isEmpty(), "no PostgreSQL");
        try (Database database = new Database(Names.key("account"))) {
            play(connect, database);
        }
    }

    public static void lockFence(Connect connect) throws Exception {
        assumeTokens();
        play(connect, new Fenced());
    }

    public static void lockAndDataInOneScript(Connect connect) throws Exception {
        assumeTokens();
        play(connect, new Data());
    }

    /** Of three owners, the first is paused until its lease ends, and the second releases the lock. Both send late writes. */
    private static void play(Connect connect, Resource resource) throws Exception {
        List<Client> clients = new ArrayList<>();
        List<Owner> former = new ArrayList<>();
        try {
            for (int turn = 0; turn < 3; turn++) {
                Client client = connect.client();
                clients.add(client);
                Owner next = new Owner(client, client.take());
                for (Owner o : former) {
                    assertFormer(o, next);
                }
                assertEquals(1, next.check(), "the token of the owner");
                assertTrue(resource.begin(next));
                for (Owner o : former) {
                    assertFalse(resource.write(o, -turn), "before the owner's write");
                }
                assertTrue(resource.write(next, turn));
                for (Owner o : former) {
                    assertFalse(resource.begin(o));
                    assertFalse(resource.write(o, -turn), "after the owner's write");
                }
                assertEquals(turn, resource.value());
                if (turn == 0) {
                    assertEquals(1, client.eval("return redis.call('PEXPIRE', KEYS[1], 1)", List.of(client.key())));
                } else {
                    next.held().release().run();
                }
                former.add(next);
            }
        } finally {
            clients.forEach(Client::close);
        }
    }

    private static void assertFormer(Owner former, Owner next) {
        assertTrue(next.held().token() > former.held().token(), next.token() + " after " + former.token());
        assertEquals(0, former.check(), "the token of a former owner");
        if (!former.held().owner().equals(next.held().owner())) {
            assertNull(former.client().eval("return redis.call('LOCK.TOKEN', KEYS[1], 'OWNER', ARGV[1])",
                    List.of(former.client().key()), former.held().owner()));
        }
    }

    /** A row in PostgreSQL. Each owner has a connection of its own. */
    private static final class Database implements Resource {
        private final String id;
        private final String read;
        private final String store;
        private final Map<Owner, Connection> connections = new HashMap<>();

        Database(String id) throws Exception {
            this.id = id;
            String[] statements = example("sql").split(";");
            read = statements[1];
            store = statements[2];
            execute(null, "INSERT INTO account (id, balance) VALUES ($1, 0)", id);
        }

        @Override
        public boolean begin(Owner owner) throws SQLException {
            return execute(owner, read, owner.held().token(), id) == 1;
        }

        @Override
        public boolean write(Owner owner, long value) throws SQLException {
            return execute(owner, store, owner.held().token(), id, value) == 1;
        }

        @Override
        public long value() throws SQLException {
            try (PreparedStatement statement = prepare(null, "SELECT balance FROM account WHERE id = $1", id);
                    ResultSet row = statement.executeQuery()) {
                assertTrue(row.next());
                return row.getLong(1);
            }
        }

        /** The number of rows that the statement has returned or changed. */
        private int execute(Owner owner, String text, Object... parameters) throws SQLException {
            try (PreparedStatement statement = prepare(owner, text, parameters)) {
                if (!statement.execute()) {
                    return statement.getUpdateCount();
                }
                try (ResultSet rows = statement.getResultSet()) {
                    return rows.next() ? 1 : 0;
                }
            }
        }

        /** JDBC has ? in place of $1 and $2. */
        private PreparedStatement prepare(Owner owner, String text, Object... parameters) throws SQLException {
            Connection connection = connections.get(owner);
            if (connection == null) {
                connection = connect();
                connections.put(owner, connection);
            }
            PreparedStatement statement = connection.prepareStatement(PARAMETER.matcher(text).replaceAll("?"));
            Matcher parameter = PARAMETER.matcher(text);
            for (int i = 1; parameter.find(); i++) {
                statement.setObject(i, parameters[Integer.parseInt(parameter.group(1)) - 1]);
            }
            return statement;
        }

        private static Connection connect() throws SQLException {
            URI uri = URI.create(POSTGRES);
            String[] user = uri.getUserInfo().split(":", 2);
            return DriverManager.getConnection("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath(), user[0], user[1]);
        }

        @Override
        public void close() throws SQLException {
            for (Connection connection : connections.values()) {
                connection.close();
            }
        }
    }

    /** A resource that cannot compare tokens: LOCK.FENCE compares them. */
    private static final class Fenced implements Resource {
        private final String key = Names.key("fence");
        private long written;

        @Override
        public boolean begin(Owner owner) {
            return owner.client().eval("return redis.call('LOCK.FENCE', KEYS[1], ARGV[1], 'PX', 60000)[1]", List.of(key),
                    owner.token()) == 1;
        }

        @Override
        public boolean write(Owner owner, long value) {
            boolean accepted = begin(owner);
            if (accepted) {
                written = value;
            }
            return accepted;
        }

        @Override
        public long value() {
            return written;
        }
    }

    /** A key of lockstep: one script checks the lock and writes the key. */
    private static final class Data implements Resource {
        private final String script = example("lua");
        private Client reader;

        @Override
        public boolean begin(Owner owner) {
            reader = owner.client();
            return owner.check() == 1;
        }

        @Override
        public boolean write(Owner owner, long value) {
            String key = owner.client().key();
            return owner.client().eval(script, List.of(key, data(owner.client())), owner.held().owner(), owner.token(),
                    Long.toString(value)) == 1;
        }

        @Override
        public long value() {
            return reader.eval("return tonumber(redis.call('GET', KEYS[1]))", List.of(data(reader)));
        }

        private static String data(Client client) {
            return "{" + client.key() + "}:data";
        }
    }

    /** The code in docs/fencing.md in a language. Maven runs the tests in the folder of their module. */
    private static String example(String language) {
        try {
            String page = Files.readString(Path.of("..", "..", "..", "docs", "fencing.md"));
            Matcher code = Pattern.compile("```" + language + "\n(.*?)```", Pattern.DOTALL).matcher(page);
            assertTrue(code.find(), "docs/fencing.md has no " + language);
            return code.group(1);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Skips the test on another server than lockstep. */
    public static void assumeTokens() throws IOException {
        if (Control.isThere()) {
            return;
        }
        try (Socket socket = new Socket(Endpoints.first().host(), Endpoints.first().port())) {
            socket.getOutputStream().write("LOCK.TOKEN none\r\n".getBytes(StandardCharsets.UTF_8));
            InputStream in = socket.getInputStream();
            byte[] start = in.readNBytes("-ERR".length());
            assumeFalse("-ERR".equals(new String(start, StandardCharsets.UTF_8)), "the server has no LOCK.TOKEN");
        }
    }
}
