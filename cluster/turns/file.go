package turns

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxFile is the largest size in bytes of a file that ReadFile reads.
const maxFile = 1 << 20

// ReadFile reads a file of certificates, a key or a secret. It refuses all but regular files: a device may have no end, and a pipe no
// writer.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: name the file itself", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes: it is none of what it is said to be", path, maxFile)
	}
	return b, err
}

// ParseCertificates returns the certificates of a PEM file. It refuses a file with a damaged or unfinished block, which may be half
// written.
func ParseCertificates(text []byte) (list []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(text)
		switch {
		case block == nil && borders(text) > 0, block != nil && borders(text[:len(text)-len(rest)]) != 2:
			return nil, fmt.Errorf("what comes after certificate %d in it is damaged or cut short", len(list))
		case block == nil:
			return list, nil
		}
		if text = rest; block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in it: %w", len(list)+1, err)
		}
		list = append(list, c)
	}
}

// borders returns how many lines begin or end a block of PEM. It also counts a last line that is cut off within its first dashes.
func borders(text []byte) (n int) {
	dashes := []byte("-----")
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, dashes) || bytes.HasPrefix(dashes, line) {
			n++
		}
	}
	return n
}
