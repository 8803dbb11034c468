package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/certs"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// crowd is a group of clients that take and release locks through every node, until the test stops them.
type crowd struct {
	t     *testing.T
	list  []*nodes.Node
	addrs []string
	away  [3]atomic.Bool // whether a node is being restarted: then its connections may break
	dial  func(addr string) (*respclient.Conn, error)
	stays int // number of cycles on one connection; 0: no limit
	done  atomic.Int64
	stop  chan struct{}
	group sync.WaitGroup
}

func startCrowd(t *testing.T, list []*nodes.Node) *crowd {
	c := &crowd{t: t, list: list, stop: make(chan struct{})}
	for _, n := range list {
		c.addrs = append(c.addrs, n.Addr)
	}
	c.dial = func(addr string) (*respclient.Conn, error) { return respclient.Dial(addr, 5*time.Second) }
	c.begin()
	return c
}

func (c *crowd) begin() {
	for i := range c.list {
		for k := range 3 {
			c.group.Go(func() { c.work(i, fmt.Sprintf("lock-%d-%d", i, k)) })
		}
	}
	c.more()
}

// work is one client. CLUSTERDOWN and INDETERMINATE always fail the test, and other errors unless the client's node is being
// restarted.
func (c *crowd) work(node int, lock string) {
	var conn *respclient.Conn
	for cycles := 1; ; cycles++ {
		select {
		case <-c.stop:
			if conn != nil {
				conn.Close()
			}
			return
		default:
		}
		away := c.away[node].Load()
		var err error
		if conn == nil {
			conn, err = c.dial(c.addrs[node])
		}
		if err == nil {
			err = cycle(conn, lock)
		}
		switch {
		case err == nil:
			c.done.Add(1)
			if c.stays > 0 && cycles%c.stays == 0 {
				conn.Close()
				conn = nil
			}
			continue
		case strings.Contains(err.Error(), "CLUSTERDOWN"), strings.Contains(err.Error(), "INDETERMINATE"):
			c.t.Errorf("a client of n%d: %v", node+1, err)
		case !away && !c.away[node].Load():
			c.t.Errorf("a client of n%d, which is not being restarted: %v", node+1, err)
		}
		if conn != nil {
			conn.Close()
			conn = nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// cycle takes a lock and releases it. The client may already hold the lock, from a cycle whose reply was lost.
func cycle(conn *respclient.Conn, lock string) error {
	if got, err := conn.Do("SET", lock, "me", "PX", "30000"); err != nil || got != "OK" {
		return fmt.Errorf("SET: %v, %w", got, err)
	}
	if got, err := conn.Do("EVAL", "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0", "1", lock, "me"); err != nil || got != int64(1) {
		return fmt.Errorf("release: %v, %w", got, err)
	}
	return nil
}

// more waits until the clients have done more than 60 further cycles.
func (c *crowd) more() {
	c.t.Helper()
	from := c.done.Load()
	until(c.t, "some more cycles", func() bool { return c.done.Load() > from+60 })
}

// restart restarts the nodes with other flags, one after the other.
func (c *crowd) restart(flags ...string) {
	c.t.Helper()
	var peers []string
	for _, n := range c.list {
		peers = append(peers, n.ID+"="+n.PeerAddr)
	}
	for i, n := range c.list {
		c.away[i].Store(true)
		n.Terminate()
		c.list[i] = n.Restarted(append([]string{"--peers", strings.Join(peers, ",")}, flags...)...)
		c.list[i].Run()
		c.list[i].WaitReady()
		c.more()
		c.away[i].Store(false)
	}
}

// hangup sends SIGHUP to every node and waits until it has read its files again.
func (c *crowd) hangup() {
	c.t.Helper()
	for _, n := range c.list {
		before := strings.Count(n.Log(), "SIGHUP: read anew")
		if err := n.Process().Signal(syscall.SIGHUP); err != nil {
			c.t.Fatal(err)
		}
		until(c.t, n.ID+" reads", func() bool { return strings.Count(n.Log(), "SIGHUP: read anew") > before })
	}
}

// reread does what hangup does, and then has every node lead once, so that new connections are made with the new files.
func (c *crowd) reread() {
	c.t.Helper()
	c.hangup()
	for _, n := range c.list {
		until(c.t, n.ID+" leads", func() bool {
			_, _ = n.Admin("transfer", n.ID)
			r, err := n.Do("LOCKSTEP", "STATUS")
			if err != nil {
				return false
			}
			status, err := respclient.Pairs(r)
			return err == nil && status["role"] == "leader"
		})
	}
	c.more()
}

func (c *crowd) end() {
	c.t.Helper()
	close(c.stop)
	c.group.Wait()
	c.t.Logf("%d cycles", c.done.Load())
}

// TestFromPlainToTLS: two rounds of restarts bring a cluster to TLS, and its secret is changed without a restart. No client gets an
// error.
func TestFromPlainToTLS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, after := "what all nodes have known till now", "what they will know from now on"
	write(before)
	list := nodes.Start(t, 3)
	c := startCrowd(t, list)
	c.restart("--peer-secret-file", path, "--peer-tls", "optional")
	c.restart("--peer-secret-file", path)
	for range rotations(t) {
		for _, lines := range [][]string{{before, after}, {after, before}, {after}} {
			write(lines...)
			c.reread()
		}
		before, after = after, before
	}
	c.end()
	plain, err := net.Dial("tcp", list[0].PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte("FLKST")); err != nil {
		t.Fatal(err)
	}
	if n, err := plain.Read(make([]byte, 1)); err == nil || n > 0 {
		t.Error("a plain connection is answered in the end")
	}
}

// asked is read before TestMain removes the LOCKSTEP_ variables, which the program under test must not get.
var asked = os.Getenv("LOCKSTEP_ROTATIONS")

// rotations returns how many rotations the test makes.
func rotations(t *testing.T) int {
	t.Helper()
	if asked == "" {
		return 1
	}
	n, err := strconv.Atoi(asked)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestClientCertificatesUnderLoad: certificates of nodes and clients, and then the CA, are replaced under load. No client with a
// trusted certificate gets an error.
func TestClientCertificatesUnderLoad(t *testing.T) {
	list, secret := nodes.StartSecret(t, 3)
	var now atomic.Pointer[tls.Config]
	// change makes first the nodes and then the clients show a certificate of one authority, and trust the given authorities.
	c := &crowd{t: t, list: list, stop: make(chan struct{}), stays: 4}
	change := func(by *certs.Authority, trusted ...*certs.Authority) *tls.Config {
		t.Helper()
		pair, err := by.Issue("lockstep", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		var pem []byte
		pool := x509.NewCertPool()
		for _, a := range trusted {
			pem = append(pem, a.PEM()...)
			pool.AppendCertsFromPEM(a.PEM())
		}
		own, err := pair.TLS()
		if err := errors.Join(err, os.WriteFile(secret.Cert, pair.Cert, 0o600), os.WriteFile(secret.Key, pair.Key, 0o600), os.WriteFile(secret.CA, pem, 0o600)); err != nil {
			t.Fatal(err)
		}
		return &tls.Config{RootCAs: pool, ServerName: "localhost", Certificates: []tls.Certificate{own}}
	}
	authority := func() *certs.Authority {
		a, err := certs.NewAuthority("rotation")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	was := authority()
	for _, n := range list {
		c.addrs = append(c.addrs, n.TLSAddr)
	}
	c.dial = func(addr string) (*respclient.Conn, error) {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", addr, now.Load())
		if err != nil {
			return nil, err
		}
		return respclient.NewConn(conn), nil
	}
	first := change(was, was)
	now.Store(first)
	c.hangup()
	c.begin()
	for range rotations(t) {
		next := authority()
		both := change(was, was, next)
		c.hangup()
		now.Store(both)
		c.more()
		later := change(next, was, next)
		c.hangup()
		now.Store(later)
		c.more()
		change(next, next)
		c.hangup()
		c.more()
		was = next
	}
	c.end()
	if conn, err := tls.Dial("tcp", list[0].TLSAddr, first); err == nil {
		_, err = respclient.NewConn(conn).Do("PING")
		if err == nil {
			t.Error("a certificate of the first authority lets in")
		}
	}
}

// TestPeerCertificatesUnderLoad: the nodes' certificates, and then the CA, are replaced while the nodes run,
// $LOCKSTEP_ROTATIONS times. No client gets an error.
func TestPeerCertificatesUnderLoad(t *testing.T) {
	const name = "peers.test"
	dir := t.TempDir()
	certs, key, ca := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "ca")
	replace := func(path string, with ...string) {
		t.Helper()
		var text []byte
		for _, from := range with {
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, b...)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was := newIssuer(t)
	renew := func(by *issuer) {
		t.Helper()
		c, k := by.issue(name)
		replace(certs, c)
		replace(key, k)
	}
	renew(was)
	replace(ca, was.path)
	list := nodes.Start(t, 3, "--peer-tls-cert-file", certs, "--peer-tls-key-file", key, "--peer-tls-ca-cert-file", ca, "--peer-tls-name", name)
	c := startCrowd(t, list)
	for range rotations(t) {
		next := newIssuer(t)
		renew(was)
		c.reread()
		replace(ca, was.path, next.path)
		c.reread()
		renew(next)
		c.reread()
		replace(ca, next.path)
		c.reread()
		was = next
	}
	c.end()
}
