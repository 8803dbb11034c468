// Package certs makes sets of certificates for measurements and tests. Each set has an authority of its own.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Pair is a certificate with its key, as PEM.
type Pair struct{ Cert, Key []byte }

// serial returns a random number of 120 bits, which is as good as unique.
func serial() (*big.Int, error) { return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) }

// NewAuthority makes an authority with the given name.
func NewAuthority(name string) (*Authority, error) {
	n, err := serial()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Pool returns a pool that contains only this authority. A peer with that pool trusts no other authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue signs a certificate for this machine, valid for the 48 hours before the given time.
func (a *Authority) Issue(name string, until time.Time) (Pair, error) {
	n, err := serial()
	if err != nil {
		return Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: name},
		NotBefore: until.Add(-48 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, nil
}

// TLS converts the pair to the form of crypto/tls.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Files are the paths of the files of a set.
type Files struct{ CA, Cert, Key string }

// Write puts an authority's certificate and a pair into a directory.
func Write(dir string, a *Authority, p Pair) (Files, error) {
	f := Files{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	return f, errors.Join(os.WriteFile(f.CA, a.PEM(), 0o644), os.WriteFile(f.Cert, p.Cert, 0o644), os.WriteFile(f.Key, p.Key, 0o600))
}

// Make writes certificates, valid for a day, to dir. It also returns a client's TLS configuration for them.
func Make(dir string) (Files, *tls.Config, error) {
	a, err := NewAuthority("lockstep test authority")
	if err != nil {
		return Files{}, nil, err
	}
	p, err := a.Issue("lockstep", time.Now().Add(24*time.Hour))
	if err != nil {
		return Files{}, nil, err
	}
	f, err := Write(dir, a, p)
	if err != nil {
		return Files{}, nil, err
	}
	own, err := p.TLS()
	return f, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{own}}, err
}
