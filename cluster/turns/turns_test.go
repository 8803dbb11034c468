package turns

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/certs"
)

func parsed(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func authority(t *testing.T, name string) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Verify accepts only short chains, and no chain with two different certificates of the same name. One certificate may be in
// the chain twice.
func TestVerifyBoundsChains(t *testing.T) {
	ca := authority(t, "ca")
	pair, err := ca.Issue("leaf", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	chain := []*x509.Certificate{parsed(t, pair.Cert), parsed(t, ca.PEM())}
	by := x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	want := func(what string, chain []*x509.Certificate, want error) {
		t.Helper()
		if err := Verify(chain, by); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("its CA", chain, nil)
	want("its CA twice", append(chain, chain[1]), nil)
	want("another of its CA's name", append(chain, parsed(t, authority(t, "ca").PEM())), errTwoOfName)
	for i := range maxChain - len(chain) {
		chain = append(chain, parsed(t, authority(t, fmt.Sprint(i)).PEM()))
	}
	want("as many as there may be", chain, nil)
	want("one more", append(chain, parsed(t, authority(t, "last").PEM())), errLongChain)
	by.Roots = authority(t, "ca").Pool()
	if err := Verify(chain, by); err == nil {
		t.Error("the chain of another CA is taken")
	}
}

// readOnly is a connection that can only be read. The Reader has its data.
type readOnly struct {
	net.Conn
	io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// A stranger may send maxRead bytes for a handshake and no more. After the handshake there is no limit.
func TestHandshakeIsBoundedByBytes(t *testing.T) {
	in := bytes.Repeat([]byte("x"), 3*maxRead)
	turns := New(1, false)
	conn := turns.Conn(context.Background(), readOnly{Reader: bytes.NewReader(in)}, nil, netip.Addr{}, false, time.Now)
	if n, err := io.Copy(io.Discard, conn); err != errMuch || n > maxRead {
		t.Errorf("before: %d bytes, %v", n, err)
	}
	conn.Done()
	if n, err := io.Copy(io.Discard, conn); err != nil || n < maxRead {
		t.Errorf("after: %d bytes, %v", n, err)
	}
	if !turns.Idle(1) {
		t.Error("a turn is left over")
	}
}

// TestFilesThatDoNotEnd: a setting that names a device, a pipe or a huge file costs neither memory nor time.
func TestFilesThatDoNotEnd(t *testing.T) {
	dir := t.TempDir()
	pipe, huge, good := filepath.Join(dir, "pipe"), filepath.Join(dir, "huge"), filepath.Join(dir, "good")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, size := range map[string]int64{huge: 1 << 40, good: 1 << 20} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{pipe, huge, dir, "/dev/zero"} {
		if b, err := ReadFile(path); err == nil || len(b) > maxFile+1 || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	if b, err := ReadFile(good); err != nil || len(b) != 1<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// ParseCertificates refuses a file in which a certificate is cut off or damaged. It accepts keys and comments between
// certificates.
func TestHalfWrittenCertificates(t *testing.T) {
	one, two := authority(t, "one").PEM(), authority(t, "two").PEM()
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")})
	text := slices.Concat([]byte("# one\n"), one, key, []byte("\n two - 2 -- \r\n"), two, []byte("end"))
	inside := func(at int) bool {
		for _, block := range [][]byte{one, key, two} {
			from := bytes.Index(text, block)
			if at > from && at < from+len(block)-1 { // the block needs no newline at its end
				return true
			}
		}
		return false
	}
	for n := range len(text) + 1 {
		list, err := ParseCertificates(text[:n])
		if want := bytes.Count(text[:n], []byte("-----END CERTIFICATE-----")); (err != nil) != inside(n) || err == nil && len(list) != want {
			t.Errorf("cut to %q: %d certificates, %v, want %d", text[max(0, n-30):n], len(list), err, want)
		}
	}
	for _, old := range []string{"MII", "-----END", "-----BEGIN"} {
		for _, block := range [][]byte{one, two} {
			broken := bytes.Replace(block, []byte(old), []byte("*"+old), 1)
			if list, err := ParseCertificates(bytes.Replace(text, block, broken, 1)); err == nil {
				t.Errorf("with a damaged %s: %d certificates", old, len(list))
			}
		}
	}
}
