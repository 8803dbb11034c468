package server

import (
	"testing"
	"time"
)

// TestPurgesAreFew: MEMORY PURGE collects garbage at most once a second, however many clients ask. All of them get a reply.
func TestPurgesAreFew(t *testing.T) {
	ts := newTestServer(t, nil)
	purged := make(chan struct{}, 1000)
	instead := func(do func()) {
		ts.purging.mu.Lock()
		defer ts.purging.mu.Unlock()
		ts.purging.do = do
	}
	instead(func() { purged <- struct{}{} })
	c := ts.dial(t)
	for range 100 {
		c.do("MEMORY PURGE", "+OK\r\n")
	}
	if len(purged) != 1 {
		t.Errorf("%d purges in one moment", len(purged))
	}
	ts.fake.advance(purgePause)
	c.do("MEMORY PURGE", "+OK\r\n")
	if len(purged) != 2 {
		t.Errorf("%d purges, not one more after a second", len(purged))
	}
	ts.fake.advance(purgePause)
	gate, begun := make(chan struct{}), make(chan struct{})
	instead(func() { close(begun); <-gate })
	c.do(`EVAL "for i = 1, 100 do redis.call('memory', 'purge') end return redis.status_reply('went on')" 0`, "+went on\r\n")
	<-begun
	ts.fake.advance(time.Hour)
	c.do("MEMORY PURGE", "+OK\r\n") // while another purge runs
	close(gate)
}
