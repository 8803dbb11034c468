package server

import (
	"fmt"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestPopulateIsBounded: DEBUG POPULATE refuses a value that no log entry could hold, and more keys than memory has room for.
func TestPopulateIsBounded(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.EnableDebugCommand = "yes" })
	c := ts.dial(t)
	limit := ts.fake.MaxEntry()
	tooBig := "-" + string(store.ErrEntryTooBig(limit)) + "\r\n"
	for _, size := range []string{"9000000000000000000", "100000000000", fmt.Sprint(limit + 1)} {
		c.do("DEBUG POPULATE 1 k "+size, tooBig)
	}
	c.do("DEBUG POPULATE 0 k 5", "+OK\r\n")
	c.do("DEBUG POPULATE 20 large 1000000", "+OK\r\n") // together they are larger than one log entry
	c.do("DBSIZE", ":20\r\n")
	c.do("DEBUG POPULATE 3000 small 0", "+OK\r\n")
	c.do("DBSIZE", ":3020\r\n")
	c.do("CONFIG SET maxmemory 10mb", "+OK\r\n")
	c.do("DEBUG POPULATE 9000000000000000000 more 10", "-"+string(store.ErrOutOfMemory)+"\r\n")
	c.do("DBSIZE", ":3020\r\n")
}
