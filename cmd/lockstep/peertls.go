package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// peerOptions are the flags of serve by which nodes authenticate to each other.
type peerOptions struct {
	secretFile                      string
	certFile, keyFile, caFile, name string
	tls                             string
}

// peerSecretEnv is the environment variable for the nodes' secret. --peer-secret-file names only a file, because everybody on the
// machine can see flags.
const peerSecretEnv = "LOCKSTEP_PEER_SECRET"

func (o *peerOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.secretFile, "peer-secret-file", "", "`file` with a secret that all nodes have, by which they know each other and speak TLS; several, one a line, for a change of it (make one: lockstep secret FILE)")
	fs.StringVar(&o.certFile, "peer-tls-cert-file", "", "`file` with this node's certificate (PEM), for peers, instead of a secret; for servers and clients, and for its host in --peers")
	fs.StringVar(&o.keyFile, "peer-tls-key-file", "", "`file` with its key")
	fs.StringVar(&o.caFile, "peer-tls-ca-cert-file", "", "`file` with the certificates of the CAs that sign the nodes' ones, and nobody else's")
	fs.StringVar(&o.name, "peer-tls-name", "", "`name` that is in every node's certificate, looked for instead of the host")
	fs.StringVar(&o.tls, "peer-tls", "", "`required|optional`: whether a peer may speak without TLS, as during the change to it (default: required, if there is a secret or a certificate)")
}

// config returns the configuration of TLS between nodes, from the flags and from peerSecretEnv.
func (o *peerOptions) config() (cluster.PeerTLS, error) {
	p := cluster.PeerTLS{Secret: os.Getenv(peerSecretEnv), SecretFile: o.secretFile,
		CertFile: o.certFile, KeyFile: o.keyFile, CAFile: o.caFile, Name: o.name, Optional: o.tls == "optional"}
	switch o.tls {
	case "", "optional":
	case "required":
		if !p.On() {
			return p, errors.New("--peer-tls required needs a --peer-secret-file, or --peer-tls-cert-file and its kin")
		}
	default:
		return p, fmt.Errorf("--peer-tls %q: want required or optional", o.tls)
	}
	return p, nil
}

// openPeerPort returns an error if other machines can reach the peer port without a secret or a certificate.
func (o *options) openPeerPort(p cluster.PeerTLS) error {
	if o.protected != "yes" || o.ephemeral || p.On() || loopback(o.peerListen) {
		return nil
	}
	return fmt.Errorf("--peer-listen %s is open to other machines, and whoever reaches it can read and take every lock: make a secret (lockstep secret FILE) and give it to all nodes by --peer-secret-file, or certificates by --peer-tls-cert-file and its kin; or listen on 127.0.0.1, or say --protected-mode=no", o.peerListen)
}

// secret writes a new secret for --peer-secret-file to a file. If the file exists, it leaves the file as it is.
func secret(args []string, stdout io.Writer) error {
	var out outputOptions
	fs := flag.NewFlagSet("secret", flag.ContinueOnError)
	out.define(fs)
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 1 || rest[0] == "" {
		return usageError{errors.New("want: secret FILE")}
	}
	path := rest[0]
	made := show.Record{{Name: "file", Value: path}, {Name: "made", Value: true}}
	var b [32]byte
	// crypto/rand does not return errors: it ends the process instead.
	_, _ = rand.Read(b[:])
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		made[1].Value = false
		return out.print(stdout, made, "%s exists; it stays as it is", path)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, hex.EncodeToString(b[:]))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return out.print(stdout, made, "%s holds a new secret: give it to all nodes by --peer-secret-file, and to nobody else", path)
}
