package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestLongNamesAreWork: CLUSTER COUNTKEYSINSLOT hashes all key names, which must count as work, so that other clients do not wait.
func TestLongNamesAreWork(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	const names, length = 100, 100_000
	for i := range names {
		c.send(array("SET", fmt.Sprint(i, strings.Repeat("x", length)), "v"))
		c.expect("+OK\r\n")
	}
	ts.fake.mu.Lock()
	defer ts.fake.mu.Unlock()
	for _, words := range []string{"cluster countkeysinslot 7", "cluster getkeysinslot 7 10"} {
		args, looks := [][]byte{}, 0
		for w := range strings.FieldsSeq(words) {
			args = append(args, []byte(w))
		}
		cmd, _ := ts.table.Resolve(args)
		ctx := store.Ctx{Txn: ts.fake.store.Begin(store.Time{}, 1000, store.Env{Limits: store.Limits{Reply: 1 << 20, Entry: 8 << 20}}), Cmd: cmd, Args: args, Watch: func() { looks++ }}
		// A command calls Watch every 4096 steps; the test asks for half as many calls.
		if r := cmd.Run(&ctx); r.IsError() || looks < names*length/hashedPerStep/8192 {
			t.Errorf("%s: %d looks, %s", words, looks, r.Str)
		}
	}
}

// TestHashedNamesAreOwnWork: hashing key names for a client of the Cluster port counts as work. A command that is too long is refused
// before that.
func TestHashedNamesAreOwnWork(t *testing.T) {
	ts := newTestServer(t, nil)
	c := dialTo(t, ts.face(t, ts.Server, FaceCluster))
	long := strings.Repeat("x", 4_000_000)
	before := ts.fake.rested.Load()
	c.send(array("EXISTS", "{a}"+long, "{a}"))
	c.expect(":0\r\n")
	c.send("PING\r\n")
	c.expect("+PONG\r\n")
	if ts.fake.rested.Load() == before {
		t.Error("4 MB of names, and the client has not given way")
	}
	limit := ts.fake.MaxEntry()
	long = strings.Repeat("x", int(limit)/2+store.MinEntry)
	c.send(array("EXISTS", "a"+long, "b"+long))
	exists := ts.table.Lookup([]byte("exists"))
	c.expect("-" + string(exists.ErrTooLong(limit)) + "\r\n")
}
