package clustertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	t    testing.TB
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	File string // the path of the file with the CA's certificate
}

// NewCA returns a CA with a new key and the common name name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	ca.Cert, ca.key = ca.sign(template, nil)
	ca.File = ca.write("ca.pem", "CERTIFICATE", ca.Cert.Raw)
	return ca
}

// sign makes a key and a certificate for it. The CA signs the certificate; if parent is nil, the new key itself does.
func (ca *CA) sign(template, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	by := ca.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

func (ca *CA) write(name, kind string, der []byte) string {
	ca.t.Helper()
	path := filepath.Join(ca.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return path
}

// Files has the paths of the files of a node: its certificate, the key of that certificate, and the certificate of the CA.
type Files struct{ Cert, Key, CA string }

// Files makes the files of a node. The functions in the parameter change alter the template of the node's certificate before the
// CA signs it.
func (ca *CA) Files(name string, change ...func(*x509.Certificate)) Files {
	ca.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "host"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, fn := range change {
		fn(template)
	}
	cert, key := ca.sign(template, ca.Cert)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return Files{Cert: ca.write(name+".pem", "CERTIFICATE", cert.Raw), Key: ca.write(name+"-key.pem", "PRIVATE KEY", der), CA: ca.File}
}
