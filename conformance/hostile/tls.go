package hostile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/conformance/certs"
)

// These are the certificates that a client may show.
const (
	goodPaper    = "good"
	noPaper      = "none"
	foreignPaper = "another authority's"
	expiredPaper = "expired"
)

// papers has the certificates and the secret of a fleet's nodes, and the certificates that clients show to the nodes.
type papers struct {
	flags  []string // flags of the nodes
	secret string   // file with the secret that the nodes share
	known  *x509.CertPool
	shown  map[string]tls.Certificate
}

// makePapers writes the files of a fleet and makes the certificates that clients show.
func makePapers(dir string) (papers, error) {
	p := papers{shown: map[string]tls.Certificate{}, secret: filepath.Join(dir, "peers")}
	own, err := certs.NewAuthority("lockstep hostile authority")
	if err != nil {
		return p, err
	}
	other, err := certs.NewAuthority("lockstep hostile authority") // it has the same name as the fleet's authority
	if err != nil {
		return p, err
	}
	for name, by := range map[string]struct {
		authority *certs.Authority
		until     time.Duration
	}{goodPaper: {own, 24 * time.Hour}, foreignPaper: {other, 24 * time.Hour}, expiredPaper: {own, -time.Minute}} {
		pair, err := by.authority.Issue("lockstep", time.Now().Add(by.until))
		if err != nil {
			return p, err
		}
		if p.shown[name], err = pair.TLS(); err != nil {
			return p, err
		}
		if name == goodPaper {
			files, err := certs.Write(dir, own, pair)
			if err != nil {
				return p, err
			}
			p.flags = []string{"--tls-cert-file", files.Cert, "--tls-key-file", files.Key, "--tls-ca-cert-file", files.CA}
		}
	}
	p.known = own.Pool()
	return p, os.WriteFile(p.secret, []byte("what only the nodes of this fleet know\n"), 0o600)
}

// wrap speaks TLS over a connection. It shows the certificate of the given name, even if the node asks for one of another
// authority.
func (p papers) wrap(conn net.Conn, shown string) net.Conn {
	c := &tls.Config{RootCAs: p.known, ServerName: "localhost", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		own := p.shown[shown] // an empty certificate stands for none
		return &own, nil
	}}
	return tls.Client(conn, c)
}

// clientHello returns the first message of a client in a TLS handshake. It differs from run to run.
var clientHello = sync.OnceValue(func() []byte {
	var sent recorder
	_ = tls.Client(&sent, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true}).Handshake() // the error says that nobody answers
	return sent.Bytes()
})

// recorder is a connection without another end. It keeps what is sent.
type recorder struct {
	net.Conn
	bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { return r.Buffer.Write(p) }
func (r *recorder) Read([]byte) (int, error)    { return 0, errors.New("nobody is there") }
func (r *recorder) Close() error                { return nil }

var tlsDoors = []door{tlsDoor, tlsSentinelDoor, tlsClusterDoor}

// handshakes makes TLS handshakes: whole, half and changed ones, too many at once, and connections without a handshake.
func handshakes(g *generator) (list []input) {
	hello := clientHello()
	changeCipher, alert := "\x14\x03\x03\x00\x01\x01", "\x15\x03\x03\x00\x02\x01\x00"
	for _, d := range tlsDoors {
		for _, p := range [][]byte{
			hello[:g.IntN(len(hello))], g.mutate(hello), append(append([]byte{}, hello...), hello...), append(append([]byte{}, hello...), strings.Repeat(changeCipher, 500)...),
			[]byte(strings.Repeat(alert, 1000)), []byte("\x16\x03\x01\xff\xff"), []byte("\x17\x03\x03\x40\x00" + strings.Repeat("x", 1<<14)), command("GET", "secret:string"),
			[]byte("\x80\x2e\x01\x00\x02"), []byte("\x16\x03\x01\x40\x00\x01\xff\xff\xff" + strings.Repeat("h", 1<<14)), append(append([]byte{}, hello...), "\x18\x03\x03\x00\x03\x01\x40\x00"...),
		} {
			list = append(list, input{door: d, node: g.node(), pieces: [][]byte{p}, read: pick(g, readNone, readAll), times: 1 + g.IntN(4), hold: time.Duration(g.IntN(100)) * time.Millisecond})
		}
	}
	return append(list,
		input{door: pick(g, tlsDoors...), node: g.node(), pieces: [][]byte{hello}, read: readNone, times: 300, hold: 300 * time.Millisecond},
		input{door: pick(g, tlsDoors...), node: g.node(), pieces: [][]byte{hello[:5]}, read: readNone, times: 300, hold: 300 * time.Millisecond},
		input{door: peerDoor, node: g.node(), pieces: [][]byte{hello}, read: readNone, times: 100, hold: 200 * time.Millisecond})
}

// tlsStrangers makes clients with certificates that prove nothing, or with a good certificate and no password.
func tlsStrangers(g *generator) (list []input) {
	ask := commands("PING", "GET secret:string", "HELLO 3", "SET secret:string x", "SENTINEL MASTERS", "CLUSTER SLOTS", "INFO", "LOCKSTEP STATUS")
	for _, d := range tlsDoors {
		for _, shown := range []string{noPaper, foreignPaper, expiredPaper} {
			list = append(list, input{door: d, node: g.node(), pieces: ask, read: pick(g, readAll, readEach), times: 1 + g.IntN(5), shown: shown})
		}
		list = append(list,
			input{door: d, node: g.node(), pieces: ask[1:4], read: readEach, times: 1 + g.IntN(5), shown: goodPaper},
			input{door: d, node: g.node(), pieces: [][]byte{g.mutate(command("AUTH", wide, "guess")), []byte("*3\r\n$3\r\nSET\r\n$")}, read: pick(g, readAll, readNone), times: 5, hold: 100 * time.Millisecond, shown: goodPaper})
	}
	big := []byte(strings.Repeat(string(command("GET", "evil:big")), 60))
	return append(list,
		input{door: tlsDoor, node: g.node(), user: wide, pieces: [][]byte{command("SET", "evil:big", strings.Repeat("v", 1<<20))}, read: readEach, shown: goodPaper},
		input{door: tlsDoor, node: g.node(), user: wide, pieces: [][]byte{big}, read: pick(g, readSlow, readNone), times: 2, hold: 300 * time.Millisecond, shown: goodPaper},
		input{door: tlsDoor, node: g.node(), user: narrow, pieces: commands("GET secret:string", "GET app:1", "EVAL return{redis.call('get','secret:string')} 0"), read: readEach, times: 3, shown: goodPaper},
		input{door: tlsDoor, node: g.node(), pieces: [][]byte{[]byte("")}, read: readNone, times: 40, hold: 200 * time.Millisecond, shown: goodPaper})
}
