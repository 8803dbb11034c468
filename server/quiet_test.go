package server

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// recordSealer makes TLS 1.3 records of a client. They may have any content.
type recordSealer struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	n      uint64
}

// newRecordSealer derives the keys of a client from the text that its KeyLogWriter has got. The client must not have sent data yet.
func newRecordSealer(t *testing.T, keyLog string) *recordSealer {
	t.Helper()
	_, line, _ := strings.Cut(keyLog, "CLIENT_TRAFFIC_SECRET_0 ")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		t.Fatalf("no secret in %q", keyLog)
	}
	secret, err := hex.DecodeString(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	s := &recordSealer{secret: secret}
	s.derive(t)
	return s
}

// expand is HKDF-Expand-Label of RFC 8446, section 7.1.
func (s *recordSealer) expand(t *testing.T, label string, n int) []byte {
	t.Helper()
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(info, byte(len("tls13 "+label))), "tls13 "+label...)
	key, err := hkdf.Expand(sha256.New, s.secret, string(append(info, 0)), n)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *recordSealer) derive(t *testing.T) {
	t.Helper()
	block, err := aes.NewCipher(s.expand(t, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	s.iv, s.n = s.expand(t, "iv", 12), 0
}

// update returns a record that announces new keys of the client. The later records of s use the new keys.
func (s *recordSealer) update(t *testing.T) []byte {
	t.Helper()
	record := s.record([]byte{24, 0, 0, 1, 0}, 22)
	s.secret = s.expand(t, "traffic upd", 32)
	s.derive(t)
	return record
}

func (s *recordSealer) record(content []byte, kind byte) []byte {
	nonce := bytes.Clone(s.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(s.n >> (56 - 8*i))
	}
	s.n++
	inner := append(bytes.Clone(content), kind)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(inner)+s.aead.Overhead()))
	return s.aead.Seal(head, nonce, inner, head)
}

// sealedConn connects to a server over TLS 1.3. It returns the connection, and a recordSealer for the client's records.
func sealedConn(t *testing.T, loops int) (*tls.Conn, *recordSealer) {
	t.Helper()
	ts, _, _, good := secretServer(t, loops)
	var keyLog bytes.Buffer
	config := good.Clone()
	config.MinVersion, config.KeyLogWriter = tls.VersionTLS13, &keyLog
	conn, err := tls.Dial("tcp", ts.addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if suite := conn.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("crypto/tls prefers %s where the processor has no instructions for AES", tls.CipherSuiteName(suite))
	}
	return conn, newRecordSealer(t, keyLog.String())
}

// TestMessagesOfTheHandshakeAfterIt: after the handshake, a client that begins another large handshake message, which crypto/tls would
// keep, is cut off.
func TestMessagesOfTheHandshakeAfterIt(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		conn, s := sealedConn(t, loops)
		raw := conn.NetConn()
		// The test sends the beginning of a certificate of 256 KiB. If a write fails, the server has cut the client off already.
		for message := append([]byte{11, 3, 0xff, 0xff}, make([]byte, 60<<10)...); len(message) > 0; {
			n := min(len(message), 16<<10)
			_, _ = raw.Write(s.record(message[:n], 22))
			message = message[n:]
		}
		_ = raw.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, raw); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server waits for the rest of it")
		}
	})
}

// TestNewKeysAndData: a client may ask for new keys, and send many large records, for as long as it likes.
func TestNewKeysAndData(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		conn, s := sealedConn(t, loops)
		raw := conn.NetConn()
		for range 8 {
			value := bytes.Repeat([]byte("v"), 16000)
			_, err := raw.Write(s.record(fmt.Appendf(nil, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(value), value), 23))
			if err == nil {
				_, err = raw.Write(s.update(t))
			}
			if err == nil {
				_, err = io.ReadFull(conn, make([]byte, len("$16000\r\n")+len(value)+2))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
