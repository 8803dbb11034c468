package turns

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
)

// maxChain is the largest number of certificates in a chain that Verify accepts.
const maxChain = 5

var (
	errLongChain = fmt.Errorf("it has sent more than %d certificates", maxChain)
	errTwoOfName = errors.New("it has sent two certificates of authorities with one name: leave out the one that does not lead to this node's")
)

// Verify verifies chain[0], with the rest of the chain as intermediate certificates. It refuses chains for which crypto/x509 might
// make many slow tries: long ones, and those with different intermediates of one subject.
func Verify(chain []*x509.Certificate, by x509.VerifyOptions) error {
	if len(chain) > maxChain {
		return errLongChain
	}
	by.Intermediates = x509.NewCertPool()
	for i, c := range chain[1:] {
		for _, other := range chain[1 : 1+i] {
			if bytes.Equal(c.RawSubject, other.RawSubject) && !c.Equal(other) {
				return errTwoOfName
			}
		}
		by.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(by)
	return err
}
