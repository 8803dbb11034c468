package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestProtobuf(t *testing.T) {
	inner := putBytes(putInt(nil, 1, 300), 2, "ab")
	b := putMessage(putInt(putInt(nil, 3, 0), 4, -1), 5, inner)
	b = putMessage(b, 6, "")
	// Field 4: ten bytes of -1; 5: its length, 08 ac02, 12 02 6162; 6: empty.
	if got, want := hex.EncodeToString(b), "20ffffffffffffffffff01"+"2a0708ac0212026162"+"3200"; got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
	// Fixed-width fields are skipped: 7 has eight bytes, 8 four.
	b = append(b, 7<<3|1, 1, 2, 3, 4, 5, 6, 7, 8, 8<<3|5, 1, 2, 3, 4)
	got, err := bytesField(b, 5)
	if err != nil || !bytes.Equal(got, inner) {
		t.Errorf("field 5: %x, %v", got, err)
	}
	if v, err := intField(got, 1); err != nil || v != 300 {
		t.Errorf("field 1: %d, %v", v, err)
	}
	if v, err := intField(b, 4); err != nil || v != -1 {
		t.Errorf("field 4: %d, %v", v, err)
	}
	if v, err := intField(b, 9); err != nil || v != 0 {
		t.Errorf("a field that is not there: %d, %v", v, err)
	}
}

func FuzzProtobuf(f *testing.F) {
	f.Add([]byte{0x20, 1})
	f.Add([]byte{0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0x0b})
	f.Fuzz(func(t *testing.T, b []byte) {
		read := 0
		if err := fields(b, func(f field) error { read += len(f.bytes); return nil }); err == nil && read > len(b) {
			t.Errorf("%d bytes out of %d", read, len(b))
		}
	})
}

// serveGRPC answers calls over HTTP/2 without TLS, as etcd does.
func serveGRPC(t *testing.T, handle http.HandlerFunc) *Etcd {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handle, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(ln) }() // until it is closed
	e := DialEtcd(ln.Addr().String(), new(Traffic))
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// message reads one that was sent.
func message(t *testing.T, body io.Reader) []byte {
	head := make([]byte, prefix)
	if _, err := io.ReadFull(body, head); err != nil {
		t.Error(err)
		return nil
	}
	b := make([]byte, head[prefix-1])
	if _, err := io.ReadFull(body, b); err != nil {
		t.Error(err)
	}
	return b
}

func answer(w http.ResponseWriter, message []byte, status, text string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	if message != nil {
		_, _ = w.Write(frame(append(blank(), message...))) // the client sees what is missing
	}
	w.Header().Set("Grpc-Status", status)
	w.Header().Set("Grpc-Message", text)
}

func TestEtcdCalls(t *testing.T) {
	var path string
	var sent []byte
	e := serveGRPC(t, func(w http.ResponseWriter, r *http.Request) {
		path, sent = r.URL.Path, message(t, r.Body)
		answer(w, putInt(nil, txnSucceeded, 1), "0", "")
	})
	ok, err := e.Create("k", "me", 7)
	if err != nil || !ok {
		t.Errorf("%v, %v", ok, err)
	}
	// compare: target CREATE, key k, revision 0; success: put k = me with lease 7.
	if want := "0a07" + "1001" + "1a016b" + "2800" + "120b" + "1209" + "0a016b" + "12026d65" + "1807"; hex.EncodeToString(sent) != want || path != "/etcdserverpb.KV/Txn" {
		t.Errorf("%s: sent %x, want %s", path, sent, want)
	}
}

func TestEtcdStatus(t *testing.T) {
	e := serveGRPC(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, "5", "etcdserver: requested lease not found%21")
	})
	var refused StatusError
	if err := e.Revoke(1); !errors.As(err, &refused) || refused.Code != "5" || !strings.HasSuffix(refused.Message, "not found!") {
		t.Errorf("got %v", err)
	}
}

// Renewals go over one stream, and one that says that the lease is gone fails.
func TestEtcdKeepAlive(t *testing.T) {
	streams := 0
	e := serveGRPC(t, func(w http.ResponseWriter, r *http.Request) {
		streams++
		for {
			head := make([]byte, prefix)
			if _, err := io.ReadFull(r.Body, head); err != nil {
				return // the client is done
			}
			b := make([]byte, head[prefix-1])
			if _, err := io.ReadFull(r.Body, b); err != nil {
				return
			}
			id, err := intField(b, 1)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(frame(putInt(putInt(blank(), 2, id), 3, id%2))) // odd ones live
			w.(http.Flusher).Flush()
		}
	})
	for _, id := range []int64{1, 3, 5} {
		if err := e.KeepAlive(id); err != nil {
			t.Errorf("lease %d: %v", id, err)
		}
	}
	if err := e.KeepAlive(2); !errors.Is(err, errLeaseGone) {
		t.Errorf("got %v", err)
	}
	if streams != 1 {
		t.Errorf("%d streams", streams)
	}
}
