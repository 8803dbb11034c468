package server

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/certs"
)

// The server refuses a chain of more than 5 certificates or with two authorities of one name, and a ClientHello of more than 32768
// bytes.
func TestLongChains(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts, log, _, good := secretServer(t, loops)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		web := ts.Listener(ln)
		defer web.Close()
		go func() {
			for {
				c, err := web.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("+PONG\r\n"))
				_ = c.Close()
			}
		}()
		chain := func(names ...string) *tls.Config {
			own := good.Certificates[0]
			own.Certificate = own.Certificate[:1:1]
			for _, name := range names {
				a, err := certs.NewAuthority(name)
				if err != nil {
					t.Fatal(err)
				}
				block, _ := pem.Decode(a.PEM())
				own.Certificate = append(own.Certificate, block.Bytes)
			}
			c := good.Clone()
			c.Certificates = []tls.Certificate{own}
			return c
		}
		large := good.Clone()
		for i := range 200 {
			large.NextProtos = append(large.NextProtos, fmt.Sprintf("%0200d", i))
		}
		for _, port := range []string{ts.addr, ln.Addr().String()} {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				for name, tc := range map[string]struct {
					as  *tls.Config
					why string // the reason in the log; "": the server admits the client
				}{
					"as many as there may be": {chain("a", "b", "c", "d"), ""},
					"one more":                {chain("a", "b", "c", "d", "e"), "more than 5 certificates"},
					"two of a name":           {chain("a", "a"), "two certificates"},
					"a large hello":           {large, "more than 32768 bytes"},
				} {
					as := tc.as.Clone()
					as.MinVersion, as.MaxVersion = version, version
					if port != ts.addr && tc.as != large {
						tc.why = "" // HTTP asks for no certificate
					}
					began := time.Now()
					got, err := answers(port, as)
					if in := strings.HasPrefix(got, "+PONG"); in != (tc.why == "") {
						t.Errorf("%s at %s, version %x: %q, %v", name, port, version, got, err)
					}
					if took := time.Since(began); took > handshakeTime {
						t.Errorf("%s: it took %v", name, took)
					}
					if tc.why == "" {
						continue
					}
					ts.fake.advance(seldomSilence)
					ts.await(func() bool {
						ts.hands.failures.sayRest(ts.fake.clock())
						return log.count(tc.why) > 0
					})
				}
			}
		}
	})
}
