package peers

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstep-io/lockstep/bench/wire"
	"github.com/lockstep-io/lockstep/conformance/certs"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// withTLS makes the clients of a system speak TLS 1.3. Every system gets a certificate of the same kind.
func withTLS(start func(*System) error) func(*System) error {
	return func(s *System) (err error) {
		dir, err := filepath.Abs(filepath.Join(s.site.Dir, s.Name+"-certificates")) // servers run in other directories
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if s.files, s.secret, err = certs.Make(dir); err != nil {
			return err
		}
		s.secret.MinVersion = tls.VersionTLS13
		return start(s)
	}
}

// secretFlags returns the TLS flags that lockstep serve and redis-server have in common.
func (s *System) secretFlags() []string {
	return []string{"--tls-cert-file", s.files.Cert, "--tls-key-file", s.files.Key, "--tls-auth-clients", "no"}
}

// redisPort returns the flags that make redis-server serve its clients at a port.
func (s *System) redisPort(port string) []string {
	if s.secret == nil {
		return []string{"--port", port}
	}
	return append(s.secretFlags(), "--port", "0", "--tls-port", port)
}

// lockstepPort returns the flags that make a node of lockstep serve its clients at an address.
func (s *System) lockstepPort(addr string) []string {
	if s.secret == nil {
		return []string{"--listen", addr}
	}
	return append(s.secretFlags(), "--listen", "", "--tls-listen", addr)
}

// dialResp connects a client whose traffic is counted.
func (s *System) dialResp(addr string) (*wire.Resp, error) {
	if s.secret == nil {
		return wire.DialResp(addr, &s.Traffic)
	}
	return wire.DialRespTLS(addr, s.secret, &s.Traffic)
}

const adminTimeout = 10 * time.Second

// dial makes a connection to administer a system. Its traffic is not counted.
func (s *System) dial(addr string) (*respclient.Conn, error) {
	if s.secret == nil {
		return respclient.Dial(addr, adminTimeout)
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: adminTimeout}, "tcp", addr, s.secret)
	if err != nil {
		return nil, err
	}
	return respclient.NewConn(conn), nil
}
