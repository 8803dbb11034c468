package server

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/youmark/pkcs8"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

// TLSFiles are the TLS settings for clients, named as in redis.conf (tls-cert-file and so on).
type TLSFiles struct {
	CertFile, KeyFile     string
	KeyFilePass           string
	CACertFile, CACertDir string // the authorities that sign the certificates of clients
	AuthClients           string // yes, no or optional; empty: yes
	Protocols             string // TLSv1.2, TLSv1.3 or both; empty: both
	Ciphers               string // suites of TLS 1.2; empty: Go's choice
	Ciphersuites          string // empty, or all suites of TLS 1.3 (checkSuites13)
}

// Certificates holds the TLS configuration of a process. Watch reads changed files again; if they cannot be used, the previous
// configuration stays in use.
type Certificates struct {
	log     *slog.Logger
	current atomic.Pointer[tls.Config] // nil: there is no certificate
	turns   *turns.Turns               // for the handshakes on all ports that use these certificates

	mu    sync.Mutex
	files TLSFiles
	// unused is true if no port speaks TLS.
	unused bool
	seen   string // sizes and times of the files at the last read; "" if that read failed
	said   string // the error that the last read returned and the log has; "" if the read succeeded
}

// NewCertificates reads the files. Without a CertFile, no port speaks TLS, and Set only stores the settings.
func NewCertificates(files TLSFiles, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{log: log, turns: turns.Half(), unused: files.CertFile == ""}
	if err := files.check(); err != nil {
		return nil, err
	}
	return c, c.Set(files)
}

// Config returns the configuration for new connections; nil if there is no certificate.
func (c *Certificates) Config() *tls.Config { return c.current.Load() }

// Files returns the settings in use.
func (c *Certificates) Files() TLSFiles {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files
}

// Set replaces the files, if the new ones can be used.
func (c *Certificates) Set(files TLSFiles) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(files)
}

// Prepare reads files without using them yet. It returns the function that makes them current.
func (c *Certificates) Prepare(files TLSFiles) (use func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current, err := c.load(files)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		current()
	}, err
}

// Reload reads the files again. The caller logs the result.
func (c *Certificates) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.again()
	return err
}

// Watch reads the files again if one of them has changed, or if the last read failed: a chmod changes neither size nor time.
func (c *Certificates) Watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unused || c.files.look() == c.seen {
		return
	}
	if news, err := c.again(); news {
		c.tell(err)
	}
}

// Certificates.again reads the files in use. news is false if the error is the same as before. The caller holds mu.
func (c *Certificates) again() (news bool, err error) {
	if err = c.read(c.files); err == nil {
		return true, nil
	}
	news = err.Error() != c.said
	c.seen, c.said = "", err.Error()
	return news, err
}

// keep calls Watch once per cronPeriod. It needs a goroutine of its own, because Watch waits while a disk does not answer.
func (c *Certificates) keep(stop <-chan struct{}) {
	tick := time.NewTicker(cronPeriod)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			c.Watch()
		}
	}
}

func (c *Certificates) tell(err error) {
	if err != nil {
		c.log.Warn("the TLS files cannot be used, what was read before goes on to count: mend them", "error", err)
	} else {
		c.log.Info("the TLS files were read again, new connections are served with them", "certificate", c.files.CertFile)
	}
}

// read loads files and makes them current. The caller holds mu.
func (c *Certificates) read(files TLSFiles) error {
	use, err := c.load(files)
	if err == nil {
		use()
	}
	return err
}

// load reads files, and returns the function that makes them current. The callers of load and of the function hold mu.
func (c *Certificates) load(files TLSFiles) (use func(), err error) {
	if c.unused {
		return func() { c.files = files }, nil
	}
	seen := files.look() // before the files are read, so that Watch notices a change during the reading
	config, err := files.config()
	if err != nil {
		return nil, err
	}
	return func() {
		c.files, c.seen, c.said = files, seen, ""
		c.current.Store(config)
	}, nil
}

// look returns a text with the sizes and modification times of the files. If a file has changed, the text differs.
func (f *TLSFiles) look() string {
	var b strings.Builder
	note := func(path string) {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	for _, path := range []string{f.CertFile, f.KeyFile, f.CACertFile, f.CACertDir} {
		if path != "" {
			note(path)
		}
	}
	if f.CACertDir != "" {
		entries, _ := os.ReadDir(f.CACertDir) // config reports the error
		for _, e := range entries {
			note(filepath.Join(f.CACertDir, e.Name()))
		}
	}
	return b.String()
}

// authClients maps the words of tls-auth-clients to the setting of crypto/tls. None of these settings makes crypto/tls
// verify a certificate: turns.Verify does that (TLSFiles.config).
var authClients = map[string]tls.ClientAuthType{
	"yes":      tls.RequireAnyClientCert,
	"no":       tls.NoClientCert,
	"optional": tls.RequestClientCert,
}

// check returns the errors in the settings themselves; it reads no file.
func (f *TLSFiles) check() error {
	var faults []error
	if _, ok := authClients[cmp.Or(f.AuthClients, "yes")]; !ok {
		faults = append(faults, fmt.Errorf("tls-auth-clients %q: want yes, no or optional", f.AuthClients))
	}
	_, _, err := tlsVersions(f.Protocols)
	_, bad := cipherSuites(f.Ciphers)
	return errors.Join(append(faults, err, bad, checkSuites13(f.Ciphersuites))...)
}

// config builds the configuration for crypto/tls from the files.
func (f *TLSFiles) config() (*tls.Config, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	cert, err := f.certificate()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   authClients[cmp.Or(f.AuthClients, "yes")],
		// A session ticket would admit a client whose certificate authority is not accepted any more.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
	c.MinVersion, c.MaxVersion, _ = tlsVersions(f.Protocols) // check has found no error in these two
	c.CipherSuites, _ = cipherSuites(f.Ciphers)
	if c.ClientAuth == tls.NoClientCert {
		return c, nil
	}
	if c.ClientCAs, err = f.authorities(); err != nil {
		return nil, err
	}
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		return turns.Verify(s.PeerCertificates, x509.VerifyOptions{Roots: c.ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	return c, nil
}

// certificate reads the server's certificate and its key.
func (f *TLSFiles) certificate() (tls.Certificate, error) {
	if f.KeyFile == "" {
		return tls.Certificate{}, errors.New("tls-cert-file needs tls-key-file")
	}
	cert, err := turns.ReadFile(f.CertFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls-cert-file: %w", err)
	}
	key, err := turns.ReadFile(f.KeyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls-key-file: %w", err)
	}
	if key, err = decryptKey(key, f.KeyFilePass); err != nil {
		return tls.Certificate{}, fmt.Errorf("tls-key-file %s: %w", f.KeyFile, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err == nil {
		_, err = turns.ParseCertificates(cert) // X509KeyPair ignores a half-written certificate behind the first
	}
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls-cert-file %s and tls-key-file %s: %w", f.CertFile, f.KeyFile, err)
	}
	return pair, nil
}

// decryptKey returns a private key in clear text, as PEM.
func decryptKey(key []byte, pass string) ([]byte, error) {
	block, _ := pem.Decode(key)
	switch {
	case block == nil:
		return key, nil // tls.X509KeyPair reports the error
	case block.Headers["DEK-Info"] != "":
		return nil, errors.New("it is encrypted in the old form of OpenSSL: convert it with `openssl pkcs8 -topk8`")
	case block.Type != "ENCRYPTED PRIVATE KEY":
		return key, nil
	case pass == "":
		return nil, errors.New("it is encrypted: give tls-key-file-pass")
	}
	private, err := pkcs8.ParsePKCS8PrivateKey(block.Bytes, []byte(pass))
	if err != nil {
		return nil, fmt.Errorf("tls-key-file-pass does not open it: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// authorities reads the certificates of the authorities that sign client certificates.
func (f *TLSFiles) authorities() (*x509.CertPool, error) {
	if f.CACertFile == "" && f.CACertDir == "" {
		return nil, errors.New("tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir: name who signs the certificates of clients, or say tls-auth-clients no")
	}
	pool, found := x509.NewCertPool(), false
	if f.CACertFile != "" {
		text, err := turns.ReadFile(f.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("tls-ca-cert-file: %w", err)
		}
		if found, err = addCertificates(pool, text); err == nil && !found {
			err = errors.New("there is no certificate in it")
		}
		if err != nil {
			return nil, fmt.Errorf("tls-ca-cert-file %s: %w", f.CACertFile, err)
		}
	}
	if f.CACertDir == "" {
		return pool, nil
	}
	entries, err := os.ReadDir(f.CACertDir)
	if err != nil {
		return nil, fmt.Errorf("tls-ca-cert-dir: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(f.CACertDir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // not a file: a Kubernetes volume has links to directories
		}
		text, err := turns.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("tls-ca-cert-dir: %w", err)
		}
		some, err := addCertificates(pool, text)
		if err != nil {
			return nil, fmt.Errorf("tls-ca-cert-dir: %s: %w", path, err)
		}
		found = found || some
	}
	if !found {
		return nil, fmt.Errorf("tls-ca-cert-dir %s: there is no certificate in it", f.CACertDir)
	}
	return pool, nil
}

// addCertificates adds the certificates of a file to a pool, and reports whether there are any.
func addCertificates(pool *x509.CertPool, text []byte) (some bool, err error) {
	list, err := turns.ParseCertificates(text)
	for _, c := range list {
		pool.AddCert(c)
	}
	return len(list) > 0, err
}

// tlsVersions reads tls-protocols. The server does not speak versions before 1.2.
func tlsVersions(words string) (least, most uint16, err error) {
	least, most = tls.VersionTLS12, tls.VersionTLS13
	has12, has13 := false, false
	for _, w := range strings.Fields(words) {
		switch {
		case strings.EqualFold(w, "TLSv1.2"):
			has12 = true
		case strings.EqualFold(w, "TLSv1.3"):
			has13 = true
		default:
			return 0, 0, fmt.Errorf("tls-protocols %q: want TLSv1.2, TLSv1.3 or both", words)
		}
	}
	switch {
	case has12 && !has13:
		most = tls.VersionTLS12
	case has13 && !has12:
		least = tls.VersionTLS13
	}
	return least, most, nil
}

// cipherSuites reads tls-ciphers, with the names of IANA or of OpenSSL.
func cipherSuites(words string) ([]uint16, error) {
	var list []uint16
	for _, w := range cipherWords(words) {
		suites := tls.CipherSuites()
		at := slices.IndexFunc(suites, func(s *tls.CipherSuite) bool {
			return s.SupportedVersions[0] != tls.VersionTLS13 && (w == s.Name || w == opensslName(s.Name))
		})
		if at < 0 {
			return nil, fmt.Errorf("tls-ciphers: %q is not served: name suites of TLS 1.2 with ECDHE and an AEAD, such as ECDHE-ECDSA-AES128-GCM-SHA256", w)
		}
		list = append(list, suites[at].ID)
	}
	return list, nil
}

// opensslName returns OpenSSL's name of a TLS 1.2 suite.
func opensslName(name string) string {
	name = strings.TrimPrefix(name, "TLS_")
	name = strings.Replace(name, "_WITH_", "_", 1)
	name = strings.Replace(name, "CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305", 1)
	name = strings.NewReplacer("AES_128_CBC_SHA", "AES128_SHA", "AES_256_CBC_SHA", "AES256_SHA", "AES_128", "AES128", "AES_256", "AES256").Replace(name)
	return strings.ReplaceAll(name, "_", "-")
}

func cipherWords(words string) []string {
	return strings.FieldsFunc(words, func(r rune) bool { return r == ':' || r == ',' || r == ' ' })
}

// checkSuites13 checks tls-ciphersuites. Go serves all three suites of TLS 1.3 and offers no choice, so
// the list must be empty or name all of them.
func checkSuites13(words string) error {
	names := cipherWords(words)
	if len(names) == 0 {
		return nil
	}
	var all []string
	for _, s := range tls.CipherSuites() {
		if s.SupportedVersions[0] == tls.VersionTLS13 {
			all = append(all, s.Name)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("tls-ciphersuites: %s is no suite of TLS 1.3 that is served: leave the list empty, or name all of %s", name, strings.Join(all, ", "))
		}
	}
	for _, name := range all {
		if !slices.Contains(names, name) {
			return fmt.Errorf("tls-ciphersuites: %s is missing: all suites of TLS 1.3 are served, so leave the list empty", name)
		}
	}
	return nil
}
