package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// tlsOptions are the flags of the command serve for clients that use TLS. The flags that set tlsOptions.files have the names of
// directives in redis.conf, except --tls-key-file-pass-file.
type tlsOptions struct {
	listen, advertise                 string
	sentinelListen, sentinelAdvertise string
	clusterListen, clusterAdvertise   string
	files                             server.TLSFiles
}

func (o *tlsOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.listen, "tls-listen", "", "`host:port` for Redis clients that speak TLS; off by default; --listen \"\" leaves only them")
	fs.StringVar(&o.advertise, "tls-advertise", "", "`host:port` under which they reach this node (default: --tls-listen)")
	fs.StringVar(&o.sentinelListen, "tls-sentinel-listen", "", "`host:port` for Sentinel clients that speak TLS: they are told the addresses of --tls-listen")
	fs.StringVar(&o.sentinelAdvertise, "tls-sentinel-advertise", "", "`host:port` under which they reach it (default: the same)")
	fs.StringVar(&o.clusterListen, "tls-cluster-listen", "", "`host:port` for clients of Redis Cluster that speak TLS: they are told such addresses of the others")
	fs.StringVar(&o.clusterAdvertise, "tls-cluster-advertise", "", "`host:port` under which they reach it (default: the same)")
	fs.StringVar(&o.files.CertFile, "tls-cert-file", "", "`file` of this node's certificate and those between it and its authority, as PEM; it is read again when it changes")
	fs.StringVar(&o.files.KeyFile, "tls-key-file", "", "`file` of the certificate's private key")
	secretVar(fs, &o.files.KeyFilePass, "tls-key-file-pass", "`password` of an encrypted --tls-key-file")
	fs.StringVar(&o.files.CACertFile, "tls-ca-cert-file", "", "`file` of the certificates of those who sign the clients'")
	fs.StringVar(&o.files.CACertDir, "tls-ca-cert-dir", "", "`directory` of such files")
	fs.StringVar(&o.files.AuthClients, "tls-auth-clients", "yes", "`yes|no|optional`: whether clients must show a certificate; optional: one that is shown must be good")
	fs.StringVar(&o.files.Protocols, "tls-protocols", "", "`versions` that are spoken: TLSv1.2, TLSv1.3 or both (default both)")
	fs.StringVar(&o.files.Ciphers, "tls-ciphers", "", "`suites` of TLS 1.2 that are spoken, with colons between them (default: those that Go thinks safe)")
	fs.StringVar(&o.files.Ciphersuites, "tls-ciphersuites", "", "`suites` of TLS 1.3; all are spoken, so another list than the whole one is refused")
}

// secretVar defines two flags for a secret: one for its text, and one for a file with the text in its first line.
func secretVar(fs *flag.FlagSet, to *string, name, usage string) {
	given := &givenOnce{name: name}
	fs.Var(secretValue{given, "", func(s string) error {
		*to = s
		return checkSecret(s)
	}}, name, usage+"; give it by a file: others see the command line")
	fs.Var(secretValue{given, "-file", func(path string) (err error) {
		*to, err = readSecret(path)
		return err
	}}, name+"-file", "`file` whose first line is that")
}

// givenOnce records which of a secret's two flags was given: in the environment or, after a call of the
// method next, on the command line.
type givenOnce struct {
	name string
	by   string
	set  bool
}

// next lets the command line set either flag, whichever one the environment has set.
func (g *givenOnce) next() { *g = givenOnce{name: g.name} }

// givenTwice begins the error for a secret that both flags set.
const givenTwice = "the secret is given twice"

// secretValue is the value of one of the two flags for a secret.
type secretValue struct {
	*givenOnce
	kind string // the end of the flag's name: "" or "-file"
	use  func(string) error
}

func (secretValue) String() string { return "" }

func (v secretValue) Set(s string) error {
	if v.set && v.by != v.kind {
		file := v.name + "-file"
		return fmt.Errorf("%s, by --%s and --%s (variables: %s, %s): leave the first one out", givenTwice, v.name, file, envName(v.name), envName(file))
	}
	v.by, v.givenOnce.set = v.kind, true
	return v.use(s)
}

// clientPort is a port for clients.
type clientPort struct {
	flag      string // the listener's flag; the flag of its advertised address ends in advertise instead of listen
	addr      *string
	advertise *string
	secret    bool
}

// clientPorts returns all ports for clients, whether the node listens on them or not.
func (o *options) clientPorts() []clientPort {
	return []clientPort{
		{"listen", &o.listen, &o.advertise, false},
		{"sentinel-listen", &o.sentinelListen, &o.sentinelAdvertise, false},
		{"cluster-listen", &o.clusterListen, &o.clusterAdvertise, false},
		{"tls-listen", &o.tls.listen, &o.tls.advertise, true},
		{"tls-sentinel-listen", &o.tls.sentinelListen, &o.tls.sentinelAdvertise, true},
		{"tls-cluster-listen", &o.tls.clusterListen, &o.tls.clusterAdvertise, true},
	}
}

// advertiseTo sets the addresses in c at which clients find this node.
func (o *options) advertiseTo(c *cluster.Config) {
	c.Advertise = o.advertised(o.advertise, o.listen)
	c.SentinelAdvertise = o.advertised(o.sentinelAdvertise, o.sentinelListen)
	c.ClusterAdvertise = o.advertised(o.clusterAdvertise, o.clusterListen)
	c.TLSAdvertise = o.advertised(o.tls.advertise, o.tls.listen)
	c.TLSSentinelAdvertise = o.advertised(o.tls.sentinelAdvertise, o.tls.sentinelListen)
	c.TLSClusterAdvertise = o.advertised(o.tls.clusterAdvertise, o.tls.clusterListen)
}

// open reports whether protected mode forbids the port p. It ignores the users in --aclfile (aclUsers).
func (o *options) open(p clientPort) bool {
	return *p.addr != "" && o.protected == "yes" && o.password == "" && !loopback(*p.addr)
}

// aclUsers reads the users in --aclfile. It returns an error if a client port is open (options.open) and the default user is open, too
// (store.User.Open).
func (o *options) aclUsers(table *store.Table) ([]*store.User, error) {
	if o.aclFile == "" {
		return nil, nil
	}
	users, err := server.ReadACLFile(o.aclFile, table, false)
	if err != nil {
		return nil, fmt.Errorf("--aclfile: %w", err)
	}
	at := slices.IndexFunc(users, func(u *store.User) bool { return u.Name == store.DefaultUser })
	for _, p := range o.clientPorts() {
		if o.open(p) && (at < 0 || users[at].Open()) {
			return nil, fmt.Errorf("--%s %s is open to other machines and the default user needs no password: give it one in %s or by --requirepass-file, or turn it off there, or say --protected-mode=no", p.flag, *p.addr, o.aclFile)
		}
	}
	return users, nil
}

// portFaults returns the faults in the flags of the client ports.
func (o *options) portFaults() (faults []error) {
	served, secret := o.unix.path != "", false
	for _, p := range o.clientPorts() {
		own := strings.TrimSuffix(p.flag, "listen") + "advertise"
		if *p.addr == "" {
			if *p.advertise != "" && p.flag != "listen" {
				faults = append(faults, fmt.Errorf("--%s needs --%s", own, p.flag))
			}
			continue
		}
		served = served || p.flag == "listen" || p.flag == "tls-listen"
		secret = secret || p.secret
		if err := cluster.CheckAddress(*p.addr); err != nil {
			faults = append(faults, fmt.Errorf("--%s: %w, such as 127.0.0.1:6379", p.flag, err))
		} else if o.open(p) && o.aclFile == "" {
			faults = append(faults, fmt.Errorf("--%s %s is open to other machines and there is no password: set --requirepass-file, listen on 127.0.0.1, or say --protected-mode=no", p.flag, *p.addr))
		}
		if err := cluster.CheckAddress(*p.advertise); err != nil && *p.advertise != "" {
			faults = append(faults, fmt.Errorf("--%s: %w", own, err))
		}
	}
	if !served {
		faults = append(faults, errors.New("there is neither --listen nor --tls-listen nor --unixsocket: clients need one"))
	}
	if secret && o.tls.files.CertFile == "" {
		faults = append(faults, errors.New("a TLS port needs --tls-cert-file and --tls-key-file"))
	}
	return faults
}
