package server

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Clients that hold too much together, each in a way of its own, are cut off, those first
// who hold most; the others are served, and nothing is counted of those who are gone.
func TestClientsThatHoldTooMuch(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		other := ts.dial(t)
		other.do("CONFIG SET maxmemory-clients 4mb", "+OK\r\n")
		ts.fake.whole.Store(true)
		big := strings.Repeat("x", 900_000)
		for i := range 12 {
			c := ts.dial(t)
			switch i % 3 {
			case 0: // half a command
				c.send(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s", 2*len(big), big))
			case 1: // a queue
				c.send("MULTI\r\n" + array("SET", "k", big))
			case 2: // replies that nobody reads
				c.send(array("SET", "big", big) + strings.Repeat(array("GET", "big"), 8))
			}
		}
		deadline := time.Now().Add(10 * time.Second)
		for {
			ts.evictClients() // as once a second
			held := int64(0)
			for _, s := range ts.each() {
				held += s.memory()
			}
			if _, cut := ts.ClientMemory(); cut >= 5 && held <= 4<<20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are held", held)
			}
			time.Sleep(10 * time.Millisecond)
		}
		other.do("SET lock me NX", "+OK\r\n")
		other.do("DEL lock", ":1\r\n")
	})
}
