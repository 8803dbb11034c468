package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster/turns"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// adminOptions are the flags of the commands that talk to a running node. The TLS flags have the same names as in redis-cli.
type adminOptions struct {
	addr, user    string
	password      string
	timeout       time.Duration
	tls, insecure bool
	ca, caDir     string
	cert, key     string
	name          string
}

func (o *adminOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.addr, "addr", "127.0.0.1:6379", "`host:port` of any node, or the path of its --unixsocket; lock takes several, separated by commas")
	fs.StringVar(&o.user, "user", "", "`name` of the ACL user who asks; it needs +lockstep, for lock the key, +lock.acquire, +lock.renew, +lock.release and +lock.token, and for the commands about locks the keys, +lock.list, +lock.info, +lock.waiters, +lock.history, +lock.stats and +lock.force (default: the user without a name of its own, default)")
	secretVar(fs, &o.password, "requirepass", "`password` of that user")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for the node; lock tries all nodes for so long")
	fs.BoolVar(&o.tls, "tls", false, "speak TLS: --addr is an address of its --tls-listen")
	fs.StringVar(&o.ca, "cacert", "", "`file` of the certificates by which the node's is known (default: the system's)")
	fs.StringVar(&o.caDir, "cacertdir", "", "`directory` of such files")
	fs.StringVar(&o.cert, "cert", "", "`file` of the certificate to show, if the node asks for one")
	fs.StringVar(&o.key, "key", "", "`file` of its private key")
	fs.StringVar(&o.name, "sni", "", "`name` that the node's certificate must have (default: the host of --addr)")
	fs.BoolVar(&o.insecure, "insecure", false, "do not check the node's certificate: whoever stands between is believed")
}

// tlsConfig returns the configuration for TLS with the node; nil without --tls. Without --tls it refuses the other TLS flags, which
// would have no effect.
func (o *adminOptions) tlsConfig() (*tls.Config, error) {
	if !o.tls {
		if o.ca+o.caDir+o.cert+o.key+o.name != "" || o.insecure {
			return nil, usageError{errors.New("--cacert, --cacertdir, --cert, --key, --sni and --insecure need --tls")}
		}
		return nil, nil
	}
	host, _, err := net.SplitHostPort(o.addr)
	if err != nil {
		return nil, o.checkAddr()
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: o.insecure}
	if o.name != "" {
		c.ServerName = o.name
	}
	if c.RootCAs, err = o.roots(); err != nil {
		return nil, err
	}
	if (o.cert == "") != (o.key == "") {
		return nil, usageError{errors.New("--cert and --key belong together: give both")}
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("--cert %s, --key %s: %w", o.cert, o.key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// roots returns the certificates of --cacert and --cacertdir. If neither flag is given, it returns nil, which stands for the
// system's certificates.
func (o *adminOptions) roots() (*x509.CertPool, error) {
	if o.ca == "" && o.caDir == "" {
		return nil, nil
	}
	var files []string
	if o.ca != "" {
		files = append(files, o.ca)
	}
	if o.caDir != "" {
		entries, err := os.ReadDir(o.caDir)
		if err != nil {
			return nil, fmt.Errorf("--cacertdir: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				files = append(files, filepath.Join(o.caDir, e.Name()))
			}
		}
	}
	pool, found := x509.NewCertPool(), false
	for _, file := range files {
		pem, err := turns.ReadFile(file)
		if err != nil {
			return nil, err
		}
		some := pool.AppendCertsFromPEM(pem)
		if found = found || some; !some && file == o.ca {
			return nil, fmt.Errorf("--cacert %s: there is no certificate in it", file)
		}
	}
	if !found {
		return nil, fmt.Errorf("--cacertdir %s: there is no certificate in it", o.caDir)
	}
	return pool, nil
}

// mostReply is how many bytes of memory a reply to this program may take. The largest reply is a piece of a backup.
const mostReply = 2 * server.BackupPiece

// askNode connects to a node, sends it one command and returns the reply.
func askNode(o adminOptions, command []string) (any, error) {
	n, err := openNode(o)
	if err != nil {
		return nil, err
	}
	defer n.close()
	return n.ask(command...)
}

// askedNode is a connection to a node that has to answer each command within --timeout.
type askedNode struct {
	o     adminOptions
	c     *respclient.Conn
	timer *time.Timer
}

func openNode(o adminOptions) (*askedNode, error) {
	c, err := dialNode(o)
	if err != nil {
		return nil, err
	}
	return &askedNode{o: o, c: c, timer: time.AfterFunc(o.timeout, func() { c.Close() })}, nil
}

func (n *askedNode) close() {
	n.timer.Stop()
	n.c.Close()
}

func (n *askedNode) ask(command ...string) (any, error) {
	n.timer.Reset(n.o.timeout)
	reply, err := n.c.Do(command...)
	return reply, n.o.answerError(err)
}

// otherwise explains a reply that has another form than those of a node.
func (o *adminOptions) otherwise(err error) error {
	if form, is := errors.AsType[show.FormError](err); is {
		return fmt.Errorf("the node at %s answered otherwise than lockstep does: %w", o.addr, form)
	}
	return err
}

// dialNode connects to a node and, if a user or a password is given, authenticates.
func dialNode(o adminOptions) (*respclient.Conn, error) {
	if err := o.checkAddr(); err != nil {
		return nil, err
	}
	if o.timeout <= 0 {
		return nil, usageError{errors.New("--timeout must be more than 0, such as 10s")}
	}
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: o.timeout}
	conn, err := dialer.Dial(o.network(), o.addr)
	if unknown, is := errors.AsType[*net.DNSError](err); is {
		return nil, fmt.Errorf("--addr %s: the host cannot be found (%w): is its name right? An IP address does as well", o.addr, unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("no node at %s: %w; start one, or name another with --addr", o.addr, err)
	}
	timer := time.AfterFunc(o.timeout, func() { conn.Close() })
	defer timer.Stop()
	if config != nil {
		secured := tls.Client(conn, config)
		if err := secured.Handshake(); err != nil {
			conn.Close()
			return nil, o.handshakeError(err)
		}
		conn = secured
	}
	c := respclient.NewConn(conn)
	c.Most = mostReply
	if o.password == "" && o.user == "" {
		return c, nil
	}
	greeting := []string{"AUTH", o.password}
	if o.user != "" {
		greeting = []string{"AUTH", o.user, o.password}
	}
	if _, err := c.Do(greeting...); err != nil {
		c.Close()
		return nil, o.answerError(err)
	}
	return c, nil
}

// network returns the network of --addr: a path is that of a Unix socket.
func (o *adminOptions) network() string {
	if strings.Contains(o.addr, "/") {
		return "unix"
	}
	return "tcp"
}

// checkAddr returns an error for an address that is neither host:port nor a path.
func (o *adminOptions) checkAddr() error {
	if o.network() == "unix" {
		if o.tls {
			return usageError{errors.New("--tls is for a port: a Unix socket has no TLS")}
		}
		return nil
	}
	_, port, err := net.SplitHostPort(o.addr)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return usageError{fmt.Errorf("--addr %q: want host:port, such as 127.0.0.1:6379, where a node has its --listen, or the path of its --unixsocket", o.addr)}
	}
	return nil
}

// handshakeError explains why the TLS handshake failed: for example because the port does not speak TLS, or because its certificate
// is not trusted.
func (o *adminOptions) handshakeError(err error) error {
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		return fmt.Errorf("%s does not speak TLS: leave --tls out, or give its --tls-listen with --addr: %w", o.addr, err)
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("the certificate of %s is of nobody that is trusted: name who issued it with --cacert: %w", o.addr, err)
	}
	return fmt.Errorf("TLS with %s: %w", o.addr, err)
}

// answerError explains an error reply, or a node that did not answer.
func (o *adminOptions) answerError(err error) error {
	var refused respclient.ServerError
	if err == nil {
		return nil
	}
	if !errors.As(err, &refused) {
		if hint := "if it is a TLS port, say --tls"; !o.tls {
			return fmt.Errorf("the node at %s did not answer: %w; %s", o.addr, err, hint)
		}
		return fmt.Errorf("the node at %s did not answer: %w; it may want a certificate: --cert and --key", o.addr, err)
	}
	if strings.HasPrefix(err.Error(), "NOAUTH") {
		return fmt.Errorf("give the node's password with --requirepass-file (or --requirepass), or a user of yours with --user: %w", err)
	}
	if strings.HasPrefix(err.Error(), "WRONGPASS") {
		return fmt.Errorf("the node does not know this user with this password: check --user and --requirepass-file (or --requirepass): %w", err)
	}
	return err
}
