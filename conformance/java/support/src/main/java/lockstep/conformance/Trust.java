package lockstep.conformance;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

import static org.junit.jupiter.api.Assumptions.assumeFalse;

/** What a program sets for TLS: whom it trusts and who it is, from the files of LOCKSTEP_TLS_CA, _CERT and _KEY. */
public final class Trust {
    private static final char[] PASSWORD = "unused".toCharArray();

    private Trust() {}

    /** Skips the test where the servers have no TLS. */
    public static void assumeAvailable() {
        assumeFalse(!isAvailable(), "no TLS listener");
    }

    public static boolean isAvailable() {
        return !Endpoints.secret().plain().isEmpty();
    }

    /** A file that the environment names. */
    public static File file(String variable) {
        return new File(ClientUnderTest.environment(variable));
    }

    /** Trusts the authority of the nodes. */
    public static TrustManagerFactory authority() {
        return authority("LOCKSTEP_TLS_CA");
    }

    /** Trusts an authority that has signed nothing. */
    public static TrustManagerFactory otherAuthority() {
        return authority("LOCKSTEP_TLS_OTHER_CA");
    }

    private static TrustManagerFactory authority(String variable) {
        try {
            KeyStore store = empty();
            store.setCertificateEntry("authority", certificate(variable));
            TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init(store);
            return factory;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Shows the client's certificate. */
    public static KeyManagerFactory certificate() {
        try {
            KeyStore store = empty();
            store.setKeyEntry("client", key(), PASSWORD, new Certificate[] {certificate("LOCKSTEP_TLS_CERT")});
            KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            factory.init(store, PASSWORD);
            return factory;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** For clients that take a socket factory: with {@link #parameters()}, which have the name checked. */
    public static SSLSocketFactory sockets() {
        return sockets(authority(), certificate());
    }

    /** The same with another authority or, if it is null, without a certificate. */
    public static SSLSocketFactory sockets(TrustManagerFactory authority, KeyManagerFactory certificate) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(certificate == null ? null : certificate.getKeyManagers(), authority.getTrustManagers(), null);
            return context.getSocketFactory();
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    public static SSLParameters parameters() {
        SSLParameters parameters = new SSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        return parameters;
    }

    private static KeyStore empty() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }

    private static Certificate certificate(String variable) throws GeneralSecurityException, IOException {
        try (InputStream in = Files.newInputStream(file(variable).toPath())) {
            return CertificateFactory.getInstance("X.509").generateCertificate(in);
        }
    }

    private static PrivateKey key() throws GeneralSecurityException, IOException {
        String pem = Files.readString(Path.of(file("LOCKSTEP_TLS_KEY").getPath()));
        byte[] der = Base64.getMimeDecoder().decode(pem.replaceAll("-----[A-Z ]+-----", ""));
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(der));
    }
}
