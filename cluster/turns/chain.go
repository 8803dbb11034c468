package turns

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
)

// maxChain is how many certificates a stranger may send.
const maxChain = 5

var (
	errLongChain = fmt.Errorf("it has sent more than %d certificates", maxChain)
	errTwoOfName = errors.New("it has sent two certificates of authorities with one name: leave out the one that does not lead to this node's")
)

// Verify verifies a chain of certificates. It refuses long chains, and chains with two different certificates of
// authorities that have one name. crypto/x509 tries each certificate that may have signed another one, with keys that
// a stranger has chosen: a hundred such tries take a second. With few certificates of different names it makes no
// more tries than there are certificates.
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
