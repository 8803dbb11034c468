package server

import (
	"errors"
	"os"
	"time"
)

// read returns the input that watch has read ahead, then the error that watch has met. If there is neither, it reads from the socket.
func (g *guard) read(p []byte) (int, error) {
	if len(g.ahead) > 0 {
		n := copy(p, g.ahead)
		if rest := g.ahead[n:]; len(rest) > 0 {
			g.setAhead(rest)
		} else {
			g.setAhead(nil)
		}
		return n, nil
	}
	if g.aheadEnd != nil {
		return 0, g.aheadEnd
	}
	return g.Conn.Read(p)
}

// setAhead replaces the input that watch has read ahead, and counts its memory for the client.
func (g *guard) setAhead(input []byte) {
	g.policy.holds(int64(cap(input) - cap(g.ahead)))
	g.ahead = input
}

// maxAhead is about how many bytes watch reads ahead. After that, it does not notice the end of the connection any more.
const maxAhead = 1 << 20

// watch calls gone when the connection ends while its usual reader waits for something else. The caller must call stop before it reads
// again.
func (g *guard) watch(gone func()) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if g.aheadEnd != nil {
			gone() // an earlier watch has met the end
			return
		}
		buf := make([]byte, smallBuffer)
		for len(g.ahead) < maxAhead && g.aheadEnd == nil {
			n, err := g.Conn.Read(buf)
			g.setAhead(append(g.ahead, buf[:n]...))
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				return
			case err != nil:
				g.aheadEnd = err
				gone()
			}
		}
	}()
	return func() {
		// SetReadDeadline fails only on a connection that has ended, which needs no deadline.
		_ = g.SetReadDeadline(time.Unix(1, 0))
		<-ended
		_ = g.SetReadDeadline(time.Time{})
	}
}
