package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestInnerErrorsAreTold: if a part of a command's work fails, the client gets the error, not a result that seems empty.
func TestInnerErrorsAreTold(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.EnableDebugCommand = "yes" })
	c := dialTo(t, ts.face(t, ts.Server, FaceCluster))
	tag := "{" + strings.Repeat("t", 1000) + "}"
	slot := fmt.Sprint(slotOf([]byte(tag)))
	ts.fake.maxReply.Store(100_000)
	for i := range 200 {
		c.ask("SET", fmt.Sprintf("%s%03d", tag, i), "v")
	}
	c.do("SET elsewhere v", "+OK\r\n")
	tooLarge := "-" + string(store.ErrReplyTooBig(100_000)) + "\r\n"
	c.do("KEYS *", tooLarge)
	c.do("CLUSTER COUNTKEYSINSLOT "+slot, ":200\r\n")
	c.do("CLUSTER COUNTKEYSINSLOT 7", ":0\r\n")
	c.do("CLUSTER GETKEYSINSLOT "+slot+" 0", "*0\r\n")
	c.do("CLUSTER GETKEYSINSLOT "+slot+" 200", tooLarge)
	if got := c.ask("CLUSTER", "GETKEYSINSLOT", slot, "50").Lines(); len(got) != 51 {
		t.Errorf("%d lines for 50 names", len(got))
	}
	c.do("DEBUG DIGEST", tooLarge)
	c.ask(append([]string{"RPUSH", "list"}, strings.Split(strings.Repeat("e ", 10_000), " ")...)...)
	c.do("DEBUG DIGEST-VALUE list", tooLarge)
	ts.fake.refusal.Store(store.Error("CLUSTERDOWN no"))
	c.do("CLUSTER COUNTKEYSINSLOT "+slot, "-CLUSTERDOWN no\r\n")
	c.do("CLUSTER GETKEYSINSLOT "+slot+" 9", "-CLUSTERDOWN no\r\n")
	c.do("DEBUG DIGEST", "-CLUSTERDOWN no\r\n")
}
