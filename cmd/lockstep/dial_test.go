package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestAdminAsAUser: an administration command may log in as any ACL user who has the right to it.
func TestAdminAsAUser(t *testing.T) {
	n := nodes.Start(t, 1, "--requirepass", "secret")[0]
	c := n.Dial()
	for _, command := range [][]string{{"AUTH", "secret"}, {"ACL", "SETUSER", "bob", "on", ">of bob", "+lockstep"},
		{"ACL", "SETUSER", "eve", "on", ">of eve", "+get", "~*"}} {
		if got, err := c.Do(command...); got != "OK" {
			t.Fatal(command, got, err)
		}
	}
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, k := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitRuntime, "NOAUTH"},
		{[]string{"--requirepass", "wrong"}, exitRuntime, "check --user and --requirepass-file (or --requirepass): WRONGPASS"},
		{[]string{"--requirepass", "secret"}, exitOK, "leader"},
		{[]string{"--requirepass-file", file("secret\n")}, exitOK, "leader"},
		{[]string{"--requirepass-file", file("secret\r\nand a second line")}, exitOK, "leader"},
		{[]string{"--user", "bob", "--requirepass-file", file("of bob")}, exitOK, "leader"},
		{[]string{"--user", "bob", "--requirepass", "secret"}, exitRuntime, "WRONGPASS"},
		{[]string{"--user", "bob"}, exitRuntime, "WRONGPASS"},
		{[]string{"--user", "eve", "--requirepass", "of eve"}, exitRuntime, "NOPERM"},
		{[]string{"--requirepass-file", file("\n")}, exitUsage, "first line is empty"},
		{[]string{"--requirepass-file", file("x") + ".absent"}, exitUsage, "no such file"},
		{[]string{"--cacert", "x"}, exitUsage, "need --tls"},
	} {
		if code, out := n.Admin("status", k.args...); code != k.code || !strings.Contains(out, k.says) {
			t.Errorf("%q: exit code %d, want %d and %q: %s", k.args, code, k.code, k.says, out)
		}
	}
	t.Setenv("LOCKSTEP_USER", "bob")
	t.Setenv("LOCKSTEP_REQUIREPASS_FILE", file("of bob"))
	if code, out := n.Admin("members"); code != exitOK {
		t.Errorf("by the environment: exit code %d: %s", code, out)
	}
	if code, out := n.Admin("backup", filepath.Join(t.TempDir(), "locks.backup")); code != exitOK {
		t.Errorf("a backup: exit code %d: %s", code, out)
	}
	if code, out := n.Admin("members", "--user", "eve", "--requirepass", "of eve"); !strings.Contains(out, "NOPERM") {
		t.Errorf("flags beside the environment: exit code %d: %s", code, out)
	}
}

// TestAdminByTLS: the administration commands verify a node by its certificate, and show a certificate of their own.
func TestAdminByTLS(t *testing.T) {
	ca, other := newIssuer(t), newIssuer(t)
	pair, err := tls.LoadX509KeyPair(ca.issue("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	serve := func(config *tls.Config) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		if config != nil {
			ln = tls.NewListener(ln, config)
		}
		go answerOK(ln)
		return ln.Addr().String()
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	open := serve(&tls.Config{Certificates: []tls.Certificate{pair}})
	strict := serve(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots})
	plain := serve(nil)
	cert, key := ca.issue("client")
	wrongCert, wrongKey := other.issue("client")
	dir := filepath.Dir(ca.path)
	for _, k := range []struct {
		addr string
		args []string
		code int
		says string
	}{
		{open, []string{"--tls", "--cacert", ca.path}, exitOK, "OK"},
		{open, []string{"--tls", "--cacertdir", dir}, exitOK, "OK"},
		{open, []string{"--tls", "--cacert", ca.path, "--sni", "localhost"}, exitOK, "OK"},
		{open, []string{"--tls", "--cacert", ca.path, "--sni", "elsewhere"}, exitRuntime, "elsewhere"},
		{open, []string{"--tls", "--cacert", other.path}, exitRuntime, "--cacert"},
		{open, []string{"--tls"}, exitRuntime, "--cacert"},
		{open, []string{"--tls", "--insecure"}, exitOK, "OK"},
		{open, nil, exitRuntime, "say --tls"},
		{open, []string{"--tls", "--cacert", key}, exitRuntime, "no certificate"},
		{open, []string{"--tls", "--cert", cert}, exitUsage, "belong together"},
		{plain, []string{"--tls", "--insecure"}, exitRuntime, "does not speak TLS"},
		{strict, []string{"--tls", "--cacert", ca.path}, exitRuntime, "--cert and --key"},
		{strict, []string{"--tls", "--cacert", ca.path, "--cert", wrongCert, "--key", wrongKey}, exitRuntime, "certificate"},
		{strict, []string{"--tls", "--cacert", ca.path, "--cert", cert, "--key", key}, exitOK, "OK"},
	} {
		if code, out := start(t, append([]string{"snapshot", "--addr", k.addr}, k.args...)...); code != k.code || !strings.Contains(out, k.says) {
			t.Errorf("%q: exit code %d, want %d and %q: %s", k.args, code, k.code, k.says, out)
		}
	}
}

// answerOK answers each command of every connection with OK, both in plain and with TLS. It closes a connection that sends
// anything else.
func answerOK(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				if strings.EqualFold(lines.Text(), "snapshot") {
					fmt.Fprint(conn, "+OK\r\n")
				} else if !strings.HasPrefix(lines.Text(), "*") && !strings.HasPrefix(lines.Text(), "$") && lines.Text() != "LOCKSTEP" {
					fmt.Fprint(conn, "-ERR not RESP\r\n")
					return
				}
			}
		}()
	}
}

// issuer is a certificate authority.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string // path of its certificate, the only file in its directory
	made int64
}

func newIssuer(t *testing.T) *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key, path: filepath.Join(t.TempDir(), "ca.crt")}
	if i.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	i.write(i.path, "CERTIFICATE", der)
	return i
}

// issue makes a certificate and its key, for this machine.
func (i *issuer) issue(name string) (cert, key string) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.made++
	template := &x509.Certificate{SerialNumber: big.NewInt(1 + i.made), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: i.cert.NotBefore, NotAfter: i.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, own.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		i.t.Fatal(err)
	}
	dir := i.t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	i.write(cert, "CERTIFICATE", der)
	i.write(key, "PRIVATE KEY", secret)
	return cert, key
}

func (i *issuer) write(path, kind string, der []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		i.t.Fatal(err)
	}
}
