package peerport

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// With a shared secret all nodes are the same CA, because each derives the CA's key from the secret. Each process makes up a key of its
// own, which the CA signs. TLS makes up new keys for each connection, so a person who learns the secret later cannot read earlier
// traffic.
//
// Any caller sees such a certificate, and can test guesses of the secret offline. So a short secret is refused, and each guess costs
// some work.
//
// These certificates never expire: membership shall not depend on the wall clock.

const (
	minPeerSecret     = 16
	maxPeerSecrets    = 16
	peerSecretWork    = 100_000 // rounds of PBKDF2, some ten milliseconds
	peerSecretName    = "lockstep-peer"
	peerSecretPurpose = "lockstep peer certificate authority v1"
)

var (
	peerSecretBegin = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	peerSecretEnd   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// secretKeys derives keys from text, which has one secret per line. from names the source of the secrets in errors.
func secretKeys(from string, text []byte) (*peerKeys, error) {
	k := &peerKeys{roots: x509.NewCertPool(), name: peerSecretName, ageless: peerSecretBegin.AddDate(1, 0, 0)}
	n := 0
	for line := range bytes.Lines(text) {
		secret := bytes.TrimSpace(line)
		if len(secret) == 0 {
			continue
		}
		if n++; n > maxPeerSecrets {
			return nil, fmt.Errorf("%s has more than %d secrets: take out those that are no longer used", from, maxPeerSecrets)
		}
		if err := strong(secret); err != nil {
			return nil, fmt.Errorf("%s, secret %d: %w; make one by: lockstep secret FILE", from, n, err)
		}
		if err := k.addSecret(secret, n == 1); err != nil {
			return nil, fmt.Errorf("%s, secret %d: %w", from, n, err)
		}
	}
	if n == 0 {
		return nil, fmt.Errorf("%s is empty; make a secret by: lockstep secret FILE", from)
	}
	return k, nil
}

// strong refuses a secret that is short or has few different characters, and a line of a certificate or a key, which everybody knows.
func strong(secret []byte) error {
	if bytes.HasPrefix(secret, []byte("-----")) {
		return errors.New("it is a line of a certificate or a key, which --peer-tls-cert-file and its kin take")
	}
	if len(secret) < minPeerSecret {
		return fmt.Errorf("it has %d characters and needs %d", len(secret), minPeerSecret)
	}
	seen := map[byte]bool{}
	for _, c := range secret {
		seen[c] = true
	}
	if len(seen) < 5 {
		return errors.New("it consists of fewer than 5 different characters")
	}
	return nil
}

// addSecret adds a secret's CA to those that this node accepts. If mine is true, the CA also signs this process's certificate.
func (k *peerKeys) addSecret(secret []byte, mine bool) error {
	hard, err := pbkdf2.Key(sha256.New, string(secret), []byte(peerSecretPurpose), peerSecretWork, sha256.Size)
	if err != nil {
		return err
	}
	seed, err := hkdf.Key(sha256.New, hard, nil, peerSecretPurpose, ed25519.SeedSize)
	if err != nil {
		return err
	}
	key := ed25519.NewKeyFromSeed(seed)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: peerSecretPurpose},
		NotBefore: peerSecretBegin, NotAfter: peerSecretEnd,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return err
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	k.roots.AddCert(root)
	if mine {
		k.cert, err = signedBy(root, key)
	}
	return err
}

// signedBy makes up a key and returns it with a certificate that the CA has signed.
func signedBy(root *x509.Certificate, by ed25519.PrivateKey) (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: peerSecretName}, DNSNames: []string{peerSecretName},
		NotBefore: peerSecretBegin, NotAfter: peerSecretEnd,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, public, by)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
