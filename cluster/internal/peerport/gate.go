package peerport

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/turns"
)

// Without TLS, any caller of a node's peer port may do what a member may. So nodes prove their identity to each other, by TLS 1.3 in
// both directions, before either side reads a byte of any protocol. The proof is a secret that all nodes have (secret.go), or a
// certificate of the operator's CA. A certificate opens the port if
//
//   - its chain leads to --peer-tls-ca-cert-file, and it is valid at present;
//   - its extended key usage allows servers and clients, so a mere client's certificate does not open the port;
//   - it has the right name. With --peer-tls-name, both sides must have that name. Otherwise the called node must have the name of
//     the dialed host, and the caller may have any name.
//
// The first byte of a connection tells TLS (0x16) from plain. So the nodes of a running cluster can be changed from plain to TLS, or
// back, one after the other (TLS.Optional).
//
// In TLS 1.3 the handshake ends for the client before the server has checked its certificate. So the caller waits until the called node
// sends 'K', and sees a refusal as a failed dial, not as a broken connection, on which Raft repeats requests.
//
// Port.open is the one function that lets a caller through to any protocol. Both sides check by peerKeys.verify, because crypto/tls
// would check only one usage on each side.

const (
	tlsHandshake = 0x16
	tlsAccepted  = 'K'

	// peerReloadPeriod is how often the gate reads the files.
	peerReloadPeriod = 3 * time.Second
)

// TLS says how nodes prove to each other that they are peers. The zero value asks for no proof.
type TLS struct {
	Secret     string // the secret itself
	SecretFile string // or a file with one secret per line: all are accepted, and the first makes this node's own certificate

	CertFile, KeyFile, CAFile string
	// Name is the name in the certificates of all nodes; "": the host under which each node is reached.
	Name string

	// Optional makes this node also accept plain connections, and open plain connections to peers that do not speak TLS.
	Optional bool
}

func (p *TLS) bySecret() bool { return p.Secret != "" || p.SecretFile != "" }
func (p *TLS) byCert() bool   { return p.CertFile != "" || p.KeyFile != "" || p.CAFile != "" }

// On reports whether the nodes prove that they are peers.
func (p *TLS) On() bool { return p.bySecret() || p.byCert() }

// Validate calls fault for the first contradiction that it finds.
func (p *TLS) Validate(fault func(string, ...any)) {
	switch {
	case p.Secret != "" && p.SecretFile != "":
		fault("LOCKSTEP_PEER_SECRET and --peer-secret-file both give the peers' secret: leave one of them out")
	case p.bySecret() && p.byCert():
		fault("--peer-secret-file and --peer-tls-cert-file are two ways to the same end: leave one of them out")
	case p.byCert() && (p.CertFile == "" || p.KeyFile == "" || p.CAFile == ""):
		fault("--peer-tls-cert-file, --peer-tls-key-file and --peer-tls-ca-cert-file belong together: give all three")
	case p.Optional && !p.On():
		fault("--peer-tls optional needs a --peer-secret-file, or --peer-tls-cert-file and its kin")
	case p.Name != "" && !p.byCert():
		fault("--peer-tls-name is the name in certificates: it needs --peer-tls-cert-file and its kin")
	}
}

// peerKeys holds the keys that a node has made from its files.
type peerKeys struct {
	cert    tls.Certificate
	roots   *x509.CertPool
	name    string    // name in the certificates of both sides; "": the host that was dialed
	ageless time.Time // time at which certificates must be valid; zero: now
	content [][]byte  // bytes of the files, to notice changes
}

// peerGate proves to peers that this node is one, and checks their proofs.
type peerGate struct {
	cfg  TLS
	wall func() time.Time
	log  *slog.Logger
	keys atomic.Pointer[peerKeys]

	turns *turns.Turns // orders the handshakes of callers
	known peerAddrs

	mu     sync.Mutex // held while loading; guards the following
	failed string     // error of the last load by the function watch; "": it did not fail
	found  [][]byte   // bytes of the files at the last load; nil if the keys in use were made from the same bytes
}

// Check reads the files, and says what is wrong with them.
func (p *TLS) Check(wall func() time.Time, log *slog.Logger) error {
	_, err := openGate(*p, wall, log)
	return err
}

// openGate reads the files of a configuration. It returns nil if the configuration asks for no proof.
func openGate(cfg TLS, wall func() time.Time, log *slog.Logger) (*peerGate, error) {
	if !cfg.On() {
		return nil, nil
	}
	// All handshakes of callers together get at most half the time of one processor.
	g := &peerGate{cfg: cfg, wall: wall, log: log, turns: turns.New(1, true)}
	if err := g.reload(); err != nil {
		return nil, err
	}
	g.warnOfReaders()
	return g, nil
}

// files returns the names of the files that hold the keys.
func (g *peerGate) files() []string {
	return slices.DeleteFunc([]string{g.cfg.SecretFile, g.cfg.CertFile, g.cfg.KeyFile, g.cfg.CAFile}, func(f string) bool { return f == "" })
}

// flagOf returns the flag that named a file.
func (p *TLS) flagOf(file string) string {
	switch file {
	case p.SecretFile:
		return "--peer-secret-file"
	case p.CertFile:
		return "--peer-tls-cert-file"
	case p.KeyFile:
		return "--peer-tls-key-file"
	}
	return "--peer-tls-ca-cert-file"
}

// warnOfReaders warns if other users may read or write a secret. The node starts nevertheless, because containers mount secrets readable
// for all.
func (g *peerGate) warnOfReaders() {
	for _, f := range []string{g.cfg.SecretFile, g.cfg.KeyFile} {
		if info, err := os.Stat(f); f != "" && err == nil && info.Mode().Perm()&0o077 != 0 {
			g.log.Warn("Other users of this machine may read or write what the nodes prove themselves with: chmod 600 it, unless this is a container of its own", "file", f, "mode", info.Mode().Perm().String())
		}
	}
}

// reload reads the files again. On an error the keys stay as they are.
func (g *peerGate) reload() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.load(1)
}

// load does the work of reload; the caller holds mu. If looks is 2, only what two loads in a row have found takes effect.
func (g *peerGate) load(looks int) error {
	content := make([][]byte, 0, 3)
	for _, f := range g.files() {
		b, err := turns.ReadFile(f)
		if err != nil {
			return fmt.Errorf("%s: %w", g.cfg.flagOf(f), err)
		}
		content = append(content, b)
	}
	old := g.keys.Load()
	if old != nil && slices.EqualFunc(old.content, content, bytes.Equal) {
		g.found = nil
		return nil
	}
	again := slices.EqualFunc(g.found, content, bytes.Equal)
	g.found = content
	keys, err := g.parse(content)
	if err != nil || looks > 1 && !again {
		return err
	}
	g.found = nil
	keys.content = content
	g.keys.Store(keys)
	if old != nil {
		g.log.Info("What the nodes prove themselves with has been read anew; connections stay, and new ones are made by it")
	}
	return nil
}

func (g *peerGate) parse(content [][]byte) (*peerKeys, error) {
	if g.cfg.byCert() {
		return g.parseCerts(content)
	}
	if g.cfg.SecretFile == "" {
		return secretKeys("LOCKSTEP_PEER_SECRET", []byte(g.cfg.Secret))
	}
	return secretKeys("--peer-secret-file "+g.cfg.SecretFile, content[0])
}

func (g *peerGate) parseCerts(content [][]byte) (*peerKeys, error) {
	k := &peerKeys{roots: x509.NewCertPool(), name: g.cfg.Name}
	var err error
	if k.cert, err = tls.X509KeyPair(content[0], content[1]); err != nil {
		return nil, fmt.Errorf("--peer-tls-cert-file %s and --peer-tls-key-file %s: %w", g.cfg.CertFile, g.cfg.KeyFile, err)
	}
	chain, err := turns.ParseCertificates(content[0])
	if err != nil {
		return nil, fmt.Errorf("--peer-tls-cert-file %s: %w", g.cfg.CertFile, err)
	}
	authorities, err := turns.ParseCertificates(content[2])
	if err == nil && len(authorities) == 0 {
		err = errors.New("there is no certificate in it (PEM)")
	}
	if err != nil {
		return nil, fmt.Errorf("--peer-tls-ca-cert-file %s: %w", g.cfg.CAFile, err)
	}
	for _, c := range authorities {
		k.roots.AddCert(c)
	}
	// Report at the start a certificate that the peers would refuse.
	if err := k.verify(chain, k.name, g.wall()); err != nil {
		return nil, fmt.Errorf("--peer-tls-cert-file %s: the peers will refuse it: %w", g.cfg.CertFile, err)
	}
	return k, nil
}

// watch loads the files every peerReloadPeriod. A file may be half written, so only what two loads in a row find takes effect.
func (g *peerGate) watch(stop <-chan struct{}) {
	tick := time.NewTicker(peerReloadPeriod)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		g.mu.Lock()
		err := g.load(2)
		before := g.failed
		g.failed = ""
		if err != nil {
			g.failed = err.Error()
		}
		g.mu.Unlock()
		switch {
		case err == nil:
			said = ""
		case err.Error() == before && before != said:
			said = before
			g.log.Error("What the nodes prove themselves with cannot be read anew; what was read before stays in use", "error", err)
		}
	}
}

var (
	errBothUses = errors.New("its extended key usage must have serverAuth and clientAuth, as a node is both")
	errNoProof  = errors.New("it has sent no certificate")
)

// verify checks that a chain leads to k.roots, and that its first certificate is valid, for servers and clients, and has the name ("":
// any).
func (k *peerKeys) verify(chain []*x509.Certificate, name string, now time.Time) error {
	if len(chain) == 0 {
		return errNoProof
	}
	if !k.ageless.IsZero() {
		now = k.ageless
	}
	leaf := chain[0]
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if !slices.Contains(leaf.ExtKeyUsage, use) {
			return cmp.Or(k.otherKind(leaf), errBothUses)
		}
		if err := turns.Verify(chain, x509.VerifyOptions{Roots: k.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
			return cmp.Or(k.otherKind(leaf), err)
		}
	}
	if name == "" {
		return nil
	}
	return leaf.VerifyHostname(name)
}

// ofSecret reports whether a certificate was made from a secret.
func ofSecret(leaf *x509.Certificate) bool { return leaf.Subject.CommonName == peerSecretName }

var (
	errOtherSecret = errors.New("it has another secret than this node: give all nodes the same --peer-secret-file")
	errHasCert     = errors.New("it has a certificate, and this node a secret: give this node --peer-tls-cert-file and its kin instead of --peer-secret-file, or all nodes a secret")
	errHasSecret   = errors.New("it has a secret, and this node a certificate: give this node --peer-secret-file instead of --peer-tls-cert-file and its kin, or all nodes a certificate")
)

// otherKind returns the likely reason why a certificate is not trusted: another secret, or a secret on only one side. Otherwise nil.
func (k *peerKeys) otherKind(leaf *x509.Certificate) error {
	switch bySecret := !k.ageless.IsZero(); {
	case bySecret && ofSecret(leaf):
		return errOtherSecret
	case bySecret:
		return errHasCert
	case ofSecret(leaf):
		return errHasSecret
	}
	return nil
}

// unproven is the error for a certificate that proves nothing.
type unproven struct{ error }

func (u unproven) Unwrap() error { return u.error }

// config returns the TLS configuration of one connection. The certificate of the peer must contain the name in the parameter
// name, unless that is "".
func (g *peerGate) config(k *peerKeys, name string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{k.cert},
		MinVersion:   tls.VersionTLS13,
		ServerName:   name,
		// VerifyConnection below checks the certificate of the peer, by the same rules on both sides.
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := k.verify(s.PeerCertificates, name, g.wall()); err != nil {
				return unproven{err}
			}
			return nil
		},
		SessionTicketsDisabled:      true, // so that each connection is checked
		DynamicRecordSizingDisabled: true,
	}
}

// provenConn is a connection between proven peers. It closes without TLS's closing message, which might block.
type provenConn struct {
	*tls.Conn
	raw net.Conn
}

func (c provenConn) Close() error { return c.raw.Close() }

// accept checks the proof of a caller whose first byte has been read. The arrival ends a handshake that takes too long.
func (g *peerGate) accept(a *arrival, first byte) (net.Conn, error) {
	k := g.keys.Load()
	conn := g.turns.Conn(a.ctx, a.raw, []byte{first}, a.from, g.known.has(a.from), g.wall)
	c := tls.Server(conn, g.config(k, k.name))
	err := c.Handshake()
	conn.Done()
	if err != nil {
		return nil, err
	}
	g.known.learn(a.from)
	if _, err := c.Write([]byte{tlsAccepted}); err != nil {
		return nil, err
	}
	return provenConn{c, a.raw}, nil
}

// call proves this node to the peer at an address, checks the proof of that peer, and sends the byte proto.
func (g *peerGate) call(conn net.Conn, addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	late := time.AfterFunc(timeout, func() { conn.Close() })
	k := g.keys.Load()
	host, _, _ := net.SplitHostPort(addr) // no error: the address has been dialed
	c := tls.Client(conn, g.config(k, cmp.Or(k.name, host)))
	err := c.Handshake()
	if err == nil {
		_, err = c.Write([]byte{proto})
	}
	var said [1]byte
	if err == nil {
		_, err = io.ReadFull(c, said[:])
	}
	switch {
	case !late.Stop():
		err = os.ErrDeadlineExceeded
	case err == nil && said[0] == tlsAccepted:
		g.known.learn(turns.Origin(conn))
		return provenConn{c, conn}, nil
	case err == nil:
		err = frame.ErrMalformed
	}
	conn.Close()
	return nil, err
}

// speaksPlain reports whether err shows that the peer does not speak TLS: other peers say what is wrong.
func speaksPlain(err error) bool {
	if said := (*net.OpError)(nil); errors.As(err, &said) && said.Op == "remote error" {
		return false
	}
	_, strange := errors.AsType[tls.RecordHeaderError](err)
	return strange || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
