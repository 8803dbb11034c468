package server

import (
	"errors"
	"os"
	"time"
)

// read reads from the socket, after what watch has read.
func (g *guard) read(p []byte) (int, error) {
	if len(g.ahead) > 0 {
		n := copy(p, g.ahead)
		g.ahead = g.ahead[n:]
		return n, nil
	}
	if g.aheadEnd != nil {
		return 0, g.aheadEnd
	}
	return g.Conn.Read(p)
}

// maxAhead is how much watch reads; after that the end of the connection goes
// unnoticed until somebody reads.
const maxAhead = 1 << 20

// watch has gone called if the connection ends. It reads ahead for that, while
// the goroutine that reads otherwise waits for something else and calls stop
// when it goes on.
func (g *guard) watch(gone func()) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, smallBuffer)
		for len(g.ahead) < maxAhead && g.aheadEnd == nil {
			n, err := g.Conn.Read(buf)
			g.ahead = append(g.ahead, buf[:n]...)
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
		// A connection that has ended has no use for deadlines.
		_ = g.SetReadDeadline(time.Unix(1, 0))
		<-ended
		_ = g.SetReadDeadline(time.Time{})
	}
}
