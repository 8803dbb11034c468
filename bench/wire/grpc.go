package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// grpc is one HTTP/2 connection without TLS on which gRPC calls are made.
type grpc struct {
	client *http.Client
	base   string
}

func newGRPC(addr string, traffic *Traffic) *grpc {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dial(ctx, addr, traffic)
		},
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return &grpc{client: &http.Client{Transport: t}, base: "http://" + addr + "/"}
}

func (g *grpc) close() { g.client.CloseIdleConnections() }

// StatusError is a gRPC status that is not OK.
type StatusError struct{ Code, Message string }

func (e StatusError) Error() string { return "grpc status " + e.Code + ": " + e.Message }

// Before each message there is a prefix: a byte that says whether the message is
// compressed, and four bytes with its length.
const prefix = 5

// frame fills in the prefix, for which blank has left room.
func frame(b []byte) []byte {
	binary.BigEndian.PutUint32(b[1:prefix], uint32(len(b)-prefix))
	return b
}

// blank begins a message, with room for the prefix.
func blank() []byte { return make([]byte, prefix, 256) }

func (g *grpc) post(ctx context.Context, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.base+method, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: HTTP status %s", method, resp.Status), resp.Body.Close())
	}
	return resp, nil
}

// call is a call with one message each way.
func (g *grpc) call(method string, message []byte) ([]byte, error) {
	resp, err := g.post(context.Background(), method, bytes.NewReader(frame(message)))
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if err := status(resp); err != nil {
		return nil, err
	}
	if len(answer) < prefix || answer[0] != 0 || int(binary.BigEndian.Uint32(answer[1:])) != len(answer)-prefix {
		return nil, fmt.Errorf("%s: not one uncompressed message: %d bytes", method, len(answer))
	}
	return answer[prefix:], nil
}

// status is what the trailer says, or the header if there was no message.
func status(resp *http.Response) error {
	from := resp.Trailer
	if from.Get("Grpc-Status") == "" {
		from = resp.Header
	}
	code := from.Get("Grpc-Status")
	if code == "0" {
		return nil
	}
	message, err := url.PathUnescape(from.Get("Grpc-Message"))
	if err != nil {
		message = from.Get("Grpc-Message")
	}
	return StatusError{code, message}
}

// stream is a call with any number of messages each way.
type stream struct {
	method string
	out    *io.PipeWriter
	resp   *http.Response
}

// open begins a stream with a first message: a server may not answer before.
func (g *grpc) open(method string, first []byte) (*stream, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(frame(first))
		written <- err
	}()
	resp, err := g.post(context.Background(), method, r)
	if err != nil {
		return nil, errors.Join(err, r.CloseWithError(err), <-written)
	}
	return &stream{method, w, resp}, <-written
}

func (s *stream) send(message []byte) error {
	_, err := s.out.Write(frame(message))
	return err
}

func (s *stream) receive() ([]byte, error) {
	var head [prefix]byte
	if _, err := io.ReadFull(s.resp.Body, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has ended: %w", s.method, status(s.resp))
		}
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(s.resp.Body, b)
	return b, err
}

func (s *stream) close() error { return errors.Join(s.out.Close(), s.resp.Body.Close()) }
